// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/picker"
)

// queue is who waits in a fleet. At the end of every step no request waits that
// has room and whose turn it is, so whoever finds nobody waiting overtakes
// nobody.
type queue struct {
	lines [classes]line
	len   int

	// since is how many interactive requests were granted since the last batch
	// request, while one waited
	since int

	// walk counts the looks at the line, see upstream.claimed
	walk uint64

	// looked is when the line was last looked at for time alone
	looked time.Time

	refused [refusals]uint64
	wait    Histogram
}

// done places who waits and has room by now, and unlocks the fleet. Every step
// that may make room ends with it.
func (f *Fleet) done(now time.Time) {
	defer f.mu.Unlock()
	if f.queue.len > 0 {
		f.admit(now)
	}
}

// admit places who waits and has room. The caller holds the lock.
func (f *Fleet) admit(now time.Time) {
	for t := f.next(now); t != nil; t = f.next(now) {
		f.drop(t, true)
		q := &f.queue
		switch {
		case t.Class == Batch:
			q.since = 0
		case q.lines[Batch].len() > 0:
			q.since++
		}
		t.state = granted
		q.wait.observe(now.Sub(t.since))
		t.signal()
	}
}

// next places the first of those that wait and have room, and returns it. Who
// has none claims the upstreams that it waits for: nobody behind it gets them.
// The caller holds the lock.
func (f *Fleet) next(now time.Time) *Ticket {
	f.queue.walk++
	order := [classes]Class{Interactive, Batch}
	if f.queue.since >= BatchShare-1 {
		order = [classes]Class{Batch, Interactive}
	}
	var hopeless *Ticket
	for _, class := range order {
		for t := range f.queue.lines[class].all() {
			if hopeless != nil && t.Pool == hopeless.Pool && t.Options == hopeless.Options && t.tokens >= 0 {
				continue
			}
			if t.tokens >= 0 && !f.hope(t) {
				hopeless = t
				continue
			}
			if f.try(t, now) {
				// nothing is claimed outside of a walk
				f.queue.walk++
				return t
			}
		}
	}
	f.queue.walk++
	return nil
}

// hope reports that an upstream has any room for requests such as t. It saves
// most of the work for a long line, for those behind the first mostly have
// none. The caller holds the lock.
func (f *Fleet) hope(t *Ticket) bool {
	f.resolve(t.Pool)
	return slices.ContainsFunc(t.Pool.upstreams, func(u *upstream) bool {
		return u.claimed != f.queue.walk && t.Options.Queue.room(u, 0)
	})
}

// try places the request of t if it has room, and claims what it waits for if
// not. The caller holds the lock.
func (f *Fleet) try(t *Ticket, now time.Time) bool {
	f.await(t, nil)
	t.usable = t.usable[:0]
	for at := range t.Pool.names {
		if t.Usable(at) {
			t.usable = append(t.usable, at)
		}
	}
	if len(t.usable) == 0 {
		return false
	}
	t.at = f.place(t.Placement, t.Request, t.Pool, t.usable, t.Options, now)
	if t.at >= 0 {
		return true
	}
	f.claim(t)
	return false
}

// claim keeps the upstreams that t waits for from those behind it: the home if
// it stays there though others have room, all candidates otherwise. The
// candidates are those of the placement that has failed. The caller holds the
// lock.
func (f *Fleet) claim(t *Ticket) {
	tokens, stays := math.MaxInt, false
	for i, at := range f.positions {
		c := &f.scratch[i]
		tokens = min(tokens, c.Uncached)
		stays = stays || f.hasRoom(t.Pool.upstreams[at], c.Uncached, t.Options)
	}
	t.tokens = tokens
	for i, at := range f.positions {
		u := t.Pool.upstreams[at]
		switch {
		case !stays:
			u.claimed = f.queue.walk
		case !math.IsInf(f.scratch[i].Cost, 1) && !f.hasRoom(u, f.scratch[i].Uncached, t.Options):
			f.await(t, u)
			u.claimed = f.queue.walk
		}
	}
}

// hasRoom reports that u has room for a request with so many uncached tokens,
// and nobody before it waits for that. The caller holds the lock.
func (f *Fleet) hasRoom(u *upstream, uncached int, o *Options) bool {
	return u.claimed != f.queue.walk && o.Queue.room(u, uncached)
}

// limit makes the candidates that have no room cost more than anything, but for
// the session's home: whether it is worth waiting for is for stickiness to say,
// with the wait in the cost. That is what is reserved there, which the cost has
// already, and the requests that wait for it before this one. The caller holds
// the lock.
func (f *Fleet) limit(p *Placement, candidates []picker.Candidate, pool *Pool, o *Options) {
	for i, at := range f.positions {
		u, c := pool.upstreams[at], &candidates[i]
		if f.hasRoom(u, c.Uncached, o) {
			continue
		}
		if p.session != nil && p.session.Home() == u.counters.Name() {
			c.Cost += o.RequestCost*float64(u.awaited) + float64(u.awaitedTokens)
		} else {
			c.Cost = math.Inf(1)
		}
	}
}

// await says that t waits for u and nothing else, nil for none. The caller holds
// the lock.
func (f *Fleet) await(t *Ticket, u *upstream) {
	if t.awaits != nil {
		t.awaits.awaited--
		t.awaits.awaitedTokens -= t.tokens
	}
	t.awaits = u
	if u != nil {
		u.awaited++
		u.awaitedTokens += t.tokens
	}
}

// signal wakes the goroutine that waits with t.
func (t *Ticket) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
