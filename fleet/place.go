// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// Place chooses the upstream with the lowest cost among those of pool that
// usable names by their position, or the session's home while that does not
// cost more than stickiness over the best, or whichever keeps the response that
// the request refers to. It reserves the request there in the same step and
// makes p its record; p must be new or ended. It returns the position in the
// pool, -1 where usable is empty, and [NoRoom] where the request has to wait,
// see [Fleet.Wait].
//
// Place allocates only for what it has to remember: a session, blocks and a
// list of upstreams that it has not seen before.
func (f *Fleet) Place(p *Placement, req *Request, pool *Pool, usable []int, o *Options, now time.Time) int {
	if len(usable) == 0 {
		return -1
	}
	f.mu.Lock()
	defer f.done(now)
	if f.queue.len > 0 && o.Queue.limits(req) {
		return NoRoom
	}
	return f.place(p, req, pool, usable, o, now)
}

// place does the work of [Fleet.Place], whoever waits. The caller holds the lock.
func (f *Fleet) place(p *Placement, req *Request, pool *Pool, usable []int, o *Options, now time.Time) int {
	strangers := f.begin(p, req, pool, usable, o, now)
	chosen := f.weigh(p, pool, usable, o, now)
	u, c := pool.upstreams[f.positions[chosen]], &f.scratch[chosen]
	if o.Queue.limits(req) && !f.hasRoom(u, c.Uncached, o) {
		f.withdraw(p, strangers, now)
		return NoRoom
	}
	if req.Prefills {
		f.remember(p, c, pool, usable, o, now)
	}
	f.commit(p, u, c, o, now)
	return f.positions[chosen]
}

// begin makes p the record of a request that is about to be placed, and the
// request a turn of its session. It returns how many strangers in a row that had
// seen before. The caller holds the lock.
func (f *Fleet) begin(p *Placement, req *Request, pool *Pool, usable []int, o *Options, now time.Time) (strangers int) {
	f.resolve(pool)
	for _, at := range usable {
		pool.upstreams[at].offered(now)
	}
	f.sweep(now)
	f.expirePeers(now)
	f.peers.bound(o)
	*p = Placement{fleet: f, request: *req}
	if req.Prefills && req.Session != 0 {
		s := f.sessions.Begin(req.Session, now, o.Sessions)
		if s != nil {
			strangers = s.Strangers
		}
		p.attend(s, o.PrefixIndex)
	}
	f.doubt(pool, usable, now)
	return strangers
}

// offered notes that a placement can choose the upstream.
func (u *upstream) offered(now time.Time) { u.seen, u.unlisted = now, false }

// weigh scores the candidates for p among the usable upstreams, sets the reason
// for the one that is chosen, and returns which that is. The caller holds the
// lock.
func (f *Fleet) weigh(p *Placement, pool *Pool, usable []int, o *Options, now time.Time) (chosen int) {
	req := &p.request
	home := ""
	if p.session != nil {
		home = p.session.Home()
	}
	p.scale = f.scaleOf(req)
	kept := f.stand(req, home, pool, usable, o, now)
	candidates := f.candidates(p, pool, o, now)
	o.Score(candidates, now)
	if o.Queue.limits(req) {
		f.limit(p, candidates, pool, o)
	}
	chosen = p.decide(candidates, o)
	if kept {
		p.reason = ReasonPinned
	}
	return chosen
}

// withdraw makes nothing of a placement that finds no room: the session, whose
// count of strangers was this before, is not to know of it. The caller holds the
// lock.
func (f *Fleet) withdraw(p *Placement, strangers int, now time.Time) {
	if s := p.named; s != nil {
		s.Strangers = strangers
		f.sessions.End(s, now)
	}
	*p = Placement{}
}

// attend makes the request a turn of s. One whose prompt is none of the
// session's conversation only keeps the session alive: it is placed like a
// request without a session, and neither moves the home nor changes the size.
// Without the prefix index every prompt under the session's own name is a turn:
// there is nothing else that could keep it where its cache is.
func (p *Placement) attend(s *sessions.Session, indexed bool) {
	p.named = s
	if s == nil {
		return
	}
	r := &p.request
	var turn bool
	switch known := s.Line.Known(); {
	case r.Shared && known:
		turn = s.Line.Extends(r.Blocks)
	case r.Shared:
		// the first prompt under the name; until it has succeeded there is
		// nothing that another one could extend
		turn = len(r.Blocks) > 0 && s.Live() == 1
	default:
		turn = !indexed || !known || r.Continues || len(r.Blocks) == 0 || s.Line.Continues(r.Head, r.Blocks)
	}
	if !turn && !r.Shared {
		s.Strangers++
		turn = s.Strangers >= strangers
	}
	if turn {
		s.Strangers = 0
		p.session = s
	}
}

// strangers is how many requests in a row are none of the session's
// conversation until it is taken to have gone on with another prompt, as when a
// client that drops its oldest messages has no instructions to tell it by. It
// is more than most sub-agents have turns.
const strangers = 32

// candidates describes the upstreams that stand best to the picker, and makes that
// f.scratch. The caller holds the lock.
func (f *Fleet) candidates(p *Placement, pool *Pool, o *Options, now time.Time) []picker.Candidate {
	f.measureSpeeds(pool, now)
	candidates := f.scratch[:0]
	for _, at := range f.positions {
		candidates = append(candidates, f.candidate(p, pool, at, o, now))
	}
	f.scratch = candidates
	return candidates
}

// candidate describes one upstream to the picker. The caller holds the lock, and
// has measured the speeds.
func (f *Fleet) candidate(p *Placement, pool *Pool, at int, o *Options, now time.Time) picker.Candidate {
	u := pool.upstreams[at]
	f.letGo(u, o.PrefillTTL, now)
	c := picker.Candidate{Upstream: u.counters, Age: picker.NeverEvicts, Others: u.engine.Others(now)}
	if !o.EqualSpeed {
		c.Speed = pool.speeds[at]
	}
	if p.request.Prefills {
		p.appraise(&c, u, o, now)
	}
	return c
}

// letGo releases the prefill tokens on u that nobody will come to release: of
// requests that have waited for longer than prefillTTL, and of silent ones that
// must be past their prefill. The caller holds the lock.
func (f *Fleet) letGo(u *upstream, prefillTTL time.Duration, now time.Time) {
	expired := u.counters.Waiting()
	f.ledger.Expire(u.counters, now.Add(-prefillTTL), f.onExpired)
	if expired != u.counters.Waiting() {
		u.meter.Spoil(u.counters.Waiting(), now)
	}
	if rate := u.meter.SafeRate(); rate > 0 {
		f.served = 0
		f.ledger.Infer(u.counters, rate, now, f.onInferred)
		u.meter.Assume(f.served, u.counters.Waiting(), now)
	}
}

// appraise sets what the request would add to u. A prompt whose blocks are
// known counts what the index does not hold. One without, or one of a session
// of which this index has never recorded anything, counts at the session's home
// what it grew since the last successful request; a prompt that shrank is
// another prompt and counts whole.
func (p *Placement) appraise(c *picker.Candidate, u *upstream, o *Options, now time.Time) {
	tokens := p.request.Tokens
	uncached := tokens
	indexed := o.PrefixIndex && len(p.request.Blocks) > 0
	if indexed {
		uncached = max(tokens-u.index.Match(p.request.Blocks)*BlockTokens, 0)
	}
	if o.PrefixIndex {
		if age, full := u.index.Age(now); full {
			c.Age = age
		}
	}
	if s := p.session; s != nil && !(indexed && s.Indexed) && s.Home() == u.counters.Name() {
		if s.Size > 0 && tokens >= s.Size {
			uncached = min(uncached, tokens-s.Size)
		}
	}
	c.Cached = p.scaled(tokens - uncached)
	c.Uncached = p.scaled(tokens) - int(float64(c.Cached)*u.engine.Belief())
}

// decide returns the position of the chosen candidate and sets the reason.
func (p *Placement) decide(candidates []picker.Candidate, o *Options) int {
	best := picker.Pick(candidates, p.request.Prefills)
	switch s := p.session; {
	case s == nil && candidates[best].Cached > 0:
		p.reason = ReasonPrefix
	case s == nil:
		p.reason = ReasonLoad
	case s.Home() == "":
		p.reason = ReasonNew
	default:
		p.reason = ReasonMovedUnavailable
		for i := range candidates {
			if candidates[i].Upstream.Name() != s.Home() {
				continue
			}
			if p.request.Continues || candidates[i].Cost-candidates[best].Cost <= o.Stickiness {
				p.reason = ReasonPinned
				return i
			}
			p.reason = ReasonMovedPressure
			break
		}
	}
	return best
}

// commit reserves the request on u and lets the session and the index know.
// The caller holds the lock.
func (f *Fleet) commit(p *Placement, u *upstream, c *picker.Candidate, o *Options, now time.Time) {
	p.upstream = u
	f.ledger.Open(&p.reservation, u.counters, picker.Claim{
		Tokens: c.Uncached, Prefills: p.request.Prefills, Silent: p.request.Silent,
	}, now)
	if !p.request.Prefills {
		return
	}
	u.health.take(p, u.allowance(u.prefill()), now)
	if p.request.streams() {
		u.beginStream(now)
	}
	p.cached = c.Cached
	u.prompts++
	u.meter.Begin(u.counters.Waiting(), now)
	u.totals.Placements[p.reason]++
	u.totals.PromptTokens += uint64(p.PromptTokens())
	u.totals.PrefillTokens += uint64(c.Uncached)
	if s := p.session; s != nil && s.Home() != u.counters.Name() {
		f.moveTo(s, u.counters.Name(), now)
		p.moved = s.Moves()
	}
	if o.PrefixIndex && len(p.request.Blocks) > 0 {
		f.lastOwner++
		p.owner = f.lastOwner
		u.resize(p.scale, o)
		held := u.index.Record(p.request.Blocks, p.owner, now)
		f.gathered.prompt(u.counters.Name(), u.indexed(p.request.Blocks), held)
		if p.session != nil {
			p.session.Indexed = true
		}
	}
}
