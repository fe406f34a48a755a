// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"time"

	"github.com/caddy-llm/loadaware/sessions"
)

// Hear takes in what another router tells. router names it: the number is another
// one for each process. News may come late, twice or not at all, and in any order:
// loads and prompts of ones that are not newer than the last are passed over, and
// of homes that differ all routers take the same. News of Serial 0 are of the past:
// they have no loads, and what they tell of was used when they were told.
//
// The lock is let go again and again, so that no placement waits for long.
func (f *Fleet) Hear(router uint64, n *News, now time.Time) {
	f.mu.Lock()
	defer f.done(now)
	if !f.gathered.on {
		return
	}
	f.expirePeers(now)
	fresh := f.hearLoads(router, n, now)
	late := n.Serial > 0 && !fresh
	pause := f.pausing()
	for i := range n.Blocks {
		if late {
			// they were heard, or may contradict what was heard since
			break
		}
		for range f.hearBlocks(router, &n.Blocks[i], now, n.Age) {
			pause()
		}
	}
	for i := range n.Homes {
		f.hearHome(&n.Homes[i], fresh, late, now, n.Age)
		pause()
	}
	for _, r := range n.Responses {
		if _, known := f.responses.makers[r.Key]; !known && r.Key != 0 {
			f.responses.note(r.Key, r.Upstream)
		}
		pause()
	}
}

// hearBlocks records a prompt that another router has placed, or takes one back
// that it was heard to have placed, age ago. It returns how many steps that has
// taken. The caller holds the lock.
func (f *Fleet) hearBlocks(router uint64, b *Blocks, now time.Time, age time.Duration) (steps int) {
	if f.peers.noIndex {
		return 1
	}
	u := f.remembered(b.Upstream, now)
	if u == nil {
		return 1
	}
	if b.Gone {
		if f.peers.claims.take(claim{router, b.Upstream, b.After}) {
			steps = u.index.Withdraw(b.After)
		}
		return 1 + steps
	}
	if u.index.Capacity() == 0 {
		u.fit(f.peers.kvTokens)
	}
	f.lastOwner++
	depth, held := u.index.Extend(b.After, b.Hashes, f.lastOwner, now.Add(-age))
	if held {
		last := b.After
		if n := len(b.Hashes); n > 0 {
			last = b.Hashes[n-1]
		}
		f.peers.claims.note(claim{router, u.counters.Name(), last})
	}
	u.index.Settle()
	return 1 + 2*depth + len(b.Hashes)
}

// hearHome takes the home of a session in that was told age ago, if that counts
// more than the one that is known. Who has told of one that counts less is told of
// the other. The caller holds the lock.
func (f *Fleet) hearHome(h *Home, fresh, late bool, now time.Time, age time.Duration) {
	bounds := f.bounds()
	if h.Session == 0 || age > bounds.TTL {
		return
	}
	if h.Upstream == "" {
		s := f.sessions.Find(h.Session)
		if s != nil && h.Version.Number > s.Version.Number {
			s.Version = h.Version
			f.sessions.Abandon(s)
		}
		return
	}
	s := f.sessions.Meet(h.Session, now.Add(-age), bounds)
	if s == nil {
		return
	}
	order := h.Version.Compare(s.Version)
	switch {
	case s.Home() == h.Upstream:
		if late || h.Version.Number < s.Version.Number {
			// what is known of its prompt may be newer
			return
		}
		if order > 0 {
			s.Version = h.Version
		}
	case s.Home() == "", order > 0, order == 0 && cmp.Less(h.Upstream, s.Home()):
		f.sessions.MoveTo(s, h.Upstream)
		s.Version = h.Version
	default:
		if fresh {
			f.gathered.home(s)
		}
		return
	}
	if h.Settled {
		s.Settled = h.Upstream
	}
	if h.Size > 0 {
		s.Size, s.Line = h.Size, h.Line
	}
	u := f.remembered(h.Upstream, now)
	s.Indexed = u != nil && h.Line.Blocks > 0 && u.index.Holds(h.Line.Last)
}

// bounds are those of the sessions that are heard of.
func (f *Fleet) bounds() sessions.Bounds {
	if f.peers.sessions.Max == 0 {
		return DefaultOptions().Sessions
	}
	return f.peers.sessions
}

// moveTo makes an upstream the home of s, "" for none, and notes what is to be
// told of that. The caller holds the lock.
func (f *Fleet) moveTo(s *sessions.Session, upstream string, now time.Time) {
	if f.sessions.MoveTo(s, upstream) == upstream && s.Version.Number > 0 {
		return
	}
	s.Version = sessions.Version{Number: s.Version.Number + 1, Since: now.UnixNano()}
	f.gathered.home(s)
}

// mostRemembered is how many upstreams a fleet knows at most by what others have
// told of them. What configurations list is known beyond that.
const mostRemembered = 1 << 12

// remembered returns what is known of an upstream that another router or an
// earlier process has told of. One that no configuration lists is kept for as
// long as one that has departed, and is not in view. It is nil where the fleet
// knows too many upstreams to remember another one. The caller holds the lock.
func (f *Fleet) remembered(name string, now time.Time) *upstream {
	u, known := f.upstreams[name]
	if !known && len(f.upstreams) < mostRemembered {
		u = f.upstream(name)
		u.seen = now.Add(-exportedFor - 1)
	}
	return u
}
