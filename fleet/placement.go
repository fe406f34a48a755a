// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/prefixes"
	"github.com/caddy-llm/loadaware/sessions"
)

// Placement is the record of one placed request. Its zero value is placed
// nowhere. It must not be copied while it is open. Every method is safe for
// concurrent use, and each end of a placement takes effect once.
type Placement struct {
	fleet    *Fleet
	request  Request
	upstream *upstream
	reason   Reason

	// shadow is what would have been chosen where another policy has
	shadow Choice

	// guarded by the fleet's lock
	reservation picker.Reservation

	// scale is how many tokens an estimated one stands for, and cached what
	// was believed to be cached
	scale  float64
	cached int

	failed  bool
	learned bool

	// session is the session of which the request is a turn, and named the one
	// it is kept alive by, which for a sub-agent is its parent's
	session, named *sessions.Session

	owner prefixes.Owner

	// serial finds the decision in the trail
	serial uint64

	// moved is the number of this placement's write of the session's home, 0
	// if it did not write it
	moved uint64
}

// Upstream is the name of the chosen upstream.
func (p *Placement) Upstream() string { return p.upstream.counters.Name() }

// Reason says why it was chosen.
func (p *Placement) Reason() Reason { return p.reason }

// Shadow is what would have been chosen where another policy has, see
// [Fleet.PlaceAt].
func (p *Placement) Shadow() Choice { return p.shadow }

// PromptTokens is the estimate of the whole prompt.
func (p *Placement) PromptTokens() int { return p.scaled(p.request.Tokens) }

// UncachedTokens is what was reserved there.
func (p *Placement) UncachedTokens() int { return p.reservation.Tokens() }

// FirstOutput releases the prefill tokens: the engine has shown that the
// prefill is done. It reports whether they were still held.
func (p *Placement) FirstOutput(now time.Time) bool {
	f := p.fleet
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.done(now)
	if p.failed || !p.reservation.Open() {
		return false
	}
	p.Progress(now)
	p.showed(now)
	if !p.request.Silent && p.request.Prefills && !p.learned {
		p.upstream.totals.FirstOutput.observe(now.Sub(p.reservation.Started()))
	}
	p.learn(now)
	f.served = 0
	if !f.ledger.FirstOutput(&p.reservation, f.onInferred) {
		return false
	}
	u := p.upstream
	if p.request.Silent {
		u.meter.Spoil(u.counters.Waiting(), now)
	} else {
		u.meter.Done(f.served+p.reservation.Tokens(), u.counters.Waiting(), now)
	}
	u.totals.Releases[CauseFirstOutput]++
	return true
}

// Fail releases the prefill tokens and takes back what the placement has
// taught the session and the prefix index, unless output was shown before. The
// request stays in flight until [Placement.End]. With blame the upstream keeps
// the load of the request for a while, so that failing fast draws nothing, and
// is chosen last for a time if it fails more than others.
func (p *Placement) Fail(c Cause, blame Blame, now time.Time) {
	f := p.fleet
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.done(now)
	p.fail(c, blame, now)
}

// Refused notes for how long the upstream has said that it has no room. It is full
// until then, at most for a minute, or until it has served a request that was placed
// later. A time that is not positive says nothing, nor does what a request without
// a prompt was told: it may be of one page alone.
func (p *Placement) Refused(told time.Duration, now time.Time) {
	f := p.fleet
	if f == nil || told <= 0 || !p.request.Prefills {
		return
	}
	f.mu.Lock()
	defer f.done(now)
	p.upstream.health.refuse(told, now)
}

// End ends the placement: the request is no longer in flight. c names what
// ended it. [CauseError] and [CauseRetried] are failures of the upstream, as by
// [Placement.Fail] with blame unless that was called before. [CauseCanceled] is
// none: what the engine may have cached stays.
func (p *Placement) End(c Cause, now time.Time) {
	f := p.fleet
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.done(now)
	if !p.reservation.Open() {
		return
	}
	switch {
	case c == CauseError || c == CauseRetried:
		p.fail(c, BlameFailure, now)
	case c == CauseEnd && !p.failed:
		p.learn(now)
		if p.request.Prefills {
			f.ledger.Completed(now.Sub(p.reservation.Started()))
		}
	}
	if f.ledger.Close(&p.reservation) {
		p.upstream.totals.Releases[c]++
		p.upstream.meter.Spoil(p.upstream.counters.Waiting(), now)
	}
	if p.request.Prefills {
		p.upstream.prompts--
	}
	p.ended(c)
	p.upstream.health.leave(p)
	if p.request.streams() {
		p.upstream.streams--
	}
	if p.named != nil {
		f.sessions.End(p.named, now)
		p.named, p.session = nil, nil
	}
	p.request.Blocks = nil
}

// learn makes the request the session's last successful one and what it
// recorded a fact. The caller holds the lock.
func (p *Placement) learn(now time.Time) {
	if p.learned {
		return
	}
	p.learned = true
	blocks := p.request.Blocks
	p.request.Blocks = nil
	if p.request.Prefills {
		p.upstream.health.succeed(p.reservation.Started(), now)
		p.fleet.noteService(p.request.Model, p.upstream, now)
	}
	p.upstream.engine.Predicted(p.cached)
	if p.owner != 0 {
		p.upstream.index.Settle()
	}
	s := p.session
	if s == nil {
		return
	}
	if s.Home() != s.Settled || s.Home() == "" {
		s.Settled = p.Upstream()
	}
	if home := s.Home(); home == "" || home == p.Upstream() {
		s.Size = p.request.Tokens
		if len(blocks) > 0 {
			s.Line = sessions.NewLine(p.request.Head, blocks)
		}
		// written again even if it is the same: a sibling that moved the
		// session here and fails must not take the home from this one
		p.fleet.moveTo(s, p.Upstream(), now)
		p.fleet.gathered.home(s)
	}
}

// fail does the work of [Placement.Fail]. The caller holds the lock.
func (p *Placement) fail(c Cause, blame Blame, now time.Time) {
	f := p.fleet
	if p.failed || !p.reservation.Open() {
		return
	}
	p.failed = true
	f.blame(p, blame, now)
	if f.ledger.Release(&p.reservation) {
		p.upstream.totals.Releases[c]++
		p.upstream.meter.Spoil(p.upstream.counters.Waiting(), now)
	}
	if p.learned {
		return
	}
	if s := p.session; s != nil && p.moved != 0 && p.moved == s.Moves() {
		f.moveTo(s, s.Settled, now)
	}
	if p.owner != 0 {
		p.upstream.index.TakeBack(p.request.Blocks, p.owner)
		f.gathered.gone(p.Upstream(), p.upstream.indexed(p.request.Blocks))
	}
}
