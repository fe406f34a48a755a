// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// What is told at once at most.
const (
	HomesAtOnce     = 1 << 12
	PromptsAtOnce   = 1 << 12
	HashesAtOnce    = enoughHashes + longestTold
	ResponsesAtOnce = 1 << 12
)

// What waits to be told at most, for the time in which nobody asks for news. Of
// what is too much the older half goes.
const (
	mostHomes     = 1 << 15
	mostPrompts   = 1 << 15
	mostHashes    = 1 << 16
	mostResponses = 1 << 15

	// enoughHashes is how many blocks are told at once before no more prompts are
	enoughHashes = 1 << 14

	// longestTold is how many new blocks of one prompt are told: those of two
	// million tokens.
	longestTold = 1 << 13
)

// gathered is what is to be told to the other routers. Its zero value gathers
// nothing.
type gathered struct {
	on bool

	// serial is that of the last news
	serial uint64

	homes     []*sessions.Session
	responses []ResponseKey

	// prompts have their new blocks in hashes, one after the other
	prompts []gatheredPrompt
	hashes  []uint64

	// dropped counts what nobody has asked for in time
	dropped uint64
}

// gatheredPrompt is [Blocks] with the number of its hashes.
type gatheredPrompt struct {
	upstream string
	after    uint64
	blocks   int
	gone     bool
}

// Share says whether the fleet is shared with other routers: whether it gathers
// news, and hears what others tell. When it ends, what others hold is forgotten;
// their homes and blocks stay.
func (f *Fleet) Share(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gathered.on == on {
		return
	}
	f.gathered = gathered{on: on, serial: f.gathered.serial, dropped: f.gathered.dropped}
	for router := range f.peers.known {
		f.forgetPeer(router)
	}
	f.glance()
}

// half drops the older half of what is too much.
func half[T any](list []T, most int, dropped *uint64) []T {
	if len(list) < most {
		return list
	}
	*dropped += uint64(len(list) / 2)
	return drop(list, len(list)/2)
}

// drop takes the first n off a list, whose memory it keeps.
func drop[T any](list []T, n int) []T {
	left := copy(list, list[n:])
	clear(list[left:])
	return list[:left]
}

// home notes that the home of s is to be told. All notes are taken under the
// fleet's lock.
func (g *gathered) home(s *sessions.Session) {
	if g.on {
		g.homes = append(half(g.homes, mostHomes, &g.dropped), s)
	}
}

func (g *gathered) response(key ResponseKey) {
	if g.on {
		g.responses = append(half(g.responses, mostResponses, &g.dropped), key)
	}
}

// prompt notes a prompt that was placed on an upstream which held so many of its
// leading blocks.
func (g *gathered) prompt(upstream string, chain []uint64, held int) {
	if !g.on || len(chain) == 0 {
		return
	}
	told := gatheredPrompt{upstream: upstream, blocks: min(len(chain)-held, longestTold)}
	if held > 0 {
		told.after = chain[held-1]
	}
	g.tell(told)
	g.hashes = append(g.hashes, chain[held:held+told.blocks]...)
}

// gone notes that what was told of a prompt is taken back.
func (g *gathered) gone(upstream string, chain []uint64) {
	if g.on && len(chain) > 0 {
		g.tell(gatheredPrompt{upstream: upstream, after: chain[len(chain)-1], gone: true})
	}
}

// tell makes room for a prompt and its blocks.
func (g *gathered) tell(p gatheredPrompt) {
	for len(g.prompts) >= mostPrompts || len(g.hashes)+p.blocks > mostHashes {
		first, hashes := (len(g.prompts)+1)/2, 0
		for i := range g.prompts[:first] {
			hashes += g.prompts[i].blocks
		}
		g.prompts, g.hashes = drop(g.prompts, first), drop(g.hashes, hashes)
		g.dropped += uint64(first)
	}
	g.prompts = append(g.prompts, p)
}

// News sets n to what is new since the last call, and to what the router holds,
// and reports that there is anything new. Of more than what goes into one message
// the rest is new the next time. n may be used again; until then its memory is
// the caller's. Without [Fleet.Share] there are no news.
func (f *Fleet) News(n *News, now time.Time) (changed bool) {
	f.mu.Lock()
	defer f.done(now)
	*n = News{Loads: n.Loads[:0], Homes: n.Homes[:0], Blocks: n.Blocks[:0], Responses: n.Responses[:0], hashes: n.hashes[:0]}
	if !f.gathered.on {
		return false
	}
	f.sweep(now)
	f.expirePeers(now)
	f.gathered.serial++
	n.Serial = f.gathered.serial
	changed = f.tellLoads(n, now)
	f.gathered.takeHomes(n)
	f.gathered.takePrompts(n)
	f.takeResponses(n)
	return changed || len(n.Homes) > 0 || len(n.Blocks) > 0 || len(n.Responses) > 0
}

// Pressing reports that there is something new that other routers should hear
// soon: a request with a prompt was placed or taken back, or an upstream keeps a
// response. Of what else is new, as of what requests have given back, nothing
// becomes wrong that is heard a little later.
func (f *Fleet) Pressing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := &f.gathered
	if len(g.prompts) > 0 || len(g.responses) > 0 || len(g.homes) >= HomesAtOnce {
		return true
	}
	for _, u := range f.upstreams {
		if g.on && u.counters.Assigned() != u.told.Assigned {
			return true
		}
	}
	return false
}

// tellLoads takes what the router holds into n, without what time lets go though
// nothing is placed, and reports that it is not what was told last. The caller
// holds the lock.
func (f *Fleet) tellLoads(n *News, now time.Time) (changed bool) {
	for name, u := range f.upstreams {
		f.letGo(u, f.peers.prefillTTL, now)
		l := Load{Upstream: name, Load: u.load(), Assigned: u.counters.Assigned()}
		other := l.Load != u.told.Load || l.Assigned != u.told.Assigned
		if other || l.Load != (picker.Load{}) {
			n.Loads = append(n.Loads, l)
		}
		changed = changed || other
		u.told = l
	}
	return changed
}

// load is what this router holds on u. The caller holds the lock.
func (u *upstream) load() picker.Load {
	c := u.counters
	return picker.Load{Requests: c.Requests(), Prompts: u.prompts, Waiting: c.Waiting(), Prefill: c.Prefill()}
}

// takeHomes takes the sessions into n as they are now.
func (g *gathered) takeHomes(n *News) {
	taken := min(len(g.homes), HomesAtOnce)
	for _, s := range g.homes[:taken] {
		if s.Told == g.serial {
			continue
		}
		s.Told = g.serial
		h := Home{Session: s.Key(), Upstream: s.Home(), Version: s.Version}
		if h.Upstream != "" {
			h.Settled, h.Size, h.Line = s.Settled == h.Upstream, s.Size, s.Line
		}
		n.Homes = append(n.Homes, h)
	}
	g.homes = drop(g.homes, taken)
}

// takePrompts takes prompts with their blocks into n.
func (g *gathered) takePrompts(n *News) {
	taken, hashes := 0, 0
	for taken < min(len(g.prompts), PromptsAtOnce) && hashes < enoughHashes {
		hashes += g.prompts[taken].blocks
		taken++
	}
	n.hashes = append(n.hashes, g.hashes[:hashes]...)
	rest := n.hashes
	for _, p := range g.prompts[:taken] {
		b := Blocks{Upstream: p.upstream, After: p.after, Gone: p.gone}
		b.Hashes, rest = rest[:p.blocks:p.blocks], rest[p.blocks:]
		n.Blocks = append(n.Blocks, b)
	}
	g.prompts, g.hashes = drop(g.prompts, taken), drop(g.hashes, hashes)
}

// takeResponses takes responses that are still known into n. The caller holds the
// lock.
func (f *Fleet) takeResponses(n *News) {
	taken := min(len(f.gathered.responses), ResponsesAtOnce)
	for _, key := range f.gathered.responses[:taken] {
		if maker, ok := f.responses.makers[key]; ok {
			n.Responses = append(n.Responses, StoredResponse{key, maker})
		}
	}
	f.gathered.responses = drop(f.gathered.responses, taken)
}
