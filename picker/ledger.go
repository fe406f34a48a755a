// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "time"

// Ledger opens and closes reservations. Its zero value is not usable, see
// [NewLedger].
type Ledger struct {
	random    func() uint64
	chosen    int64
	durations durations
}

// NewLedger returns a ledger. random orders upstreams that were never chosen;
// production passes rand.Uint64 of math/rand/v2.
func NewLedger(random func() uint64) *Ledger {
	return &Ledger{random: random}
}

// NewUpstream returns counters at 0 for the named upstream.
func (l *Ledger) NewUpstream(name string) *Upstream {
	first := -1 - int64(l.random()>>1)
	return &Upstream{name: name, assigned: first, called: first}
}

// Claim is what a request asks of the upstream it is placed on.
type Claim struct {
	// Tokens are the uncached tokens to reserve.
	Tokens int

	// Prefills says that the engine prefills a prompt for the request. One
	// that does not is only counted as in flight.
	Prefills bool

	// Silent says that the response shows nothing before it is complete.
	Silent bool
}

// Open reserves c on u and makes r its record. r must be new or closed. u
// becomes the most recently chosen upstream for requests of its kind, with a
// prompt or without.
func (l *Ledger) Open(r *Reservation, u *Upstream, c Claim, now time.Time) {
	l.chosen++
	u.requests++
	u.peak = max(u.peak, u.requests)
	*r = Reservation{upstream: u, open: true, silent: c.Silent, started: now}
	if !c.Prefills {
		u.called = l.chosen
	} else {
		u.assigned, u.placed = l.chosen, uint64(l.chosen)
		r.tokens = max(c.Tokens, 0)
		u.prefill += r.tokens
		r.ahead = u.prefill + u.peers.Prefill
		u.waiting.push(r)
	}
}

// FirstOutput releases the prefill tokens of r and reports whether r still held
// them. inferred is called for every silent reservation that was opened before
// r on the same upstream and is released with it: engines prefill in order of
// arrival, so those must be past their prefill too.
func (l *Ledger) FirstOutput(r *Reservation, inferred func(*Reservation)) bool {
	if !r.waits {
		return false
	}
	for older := r.upstream.waiting.first; older != r; {
		next := older.next
		if older.silent {
			older.release()
			inferred(older)
		}
		older = next
	}
	r.release()
	return true
}

// Expire releases the prefill tokens of the reservations on u that were opened
// before deadline, from the oldest on, and calls expired for each.
func (l *Ledger) Expire(u *Upstream, deadline time.Time, expired func(*Reservation)) {
	for r := u.waiting.first; r != nil && r.started.Before(deadline); r = u.waiting.first {
		r.release()
		expired(r)
	}
}

// Infer releases the silent reservations at the head of u's queue that must be
// past their prefill by now, and calls inferred for each: an engine that
// prefills rate tokens per second was done with what was before them and with
// them, and that at least a second ago. One that shows its output is waited for.
func (l *Ledger) Infer(u *Upstream, rate float64, now time.Time, inferred func(*Reservation)) {
	for r := u.waiting.first; r != nil && r.silent; r = u.waiting.first {
		// in floating point, because no duration holds what a tiny rate makes
		if now.Sub(r.started).Seconds() < 1+float64(r.ahead)/rate {
			return
		}
		r.release()
		inferred(r)
	}
}

// Release gives the prefill tokens of r back and leaves its request in flight.
// It reports whether they were held.
func (l *Ledger) Release(r *Reservation) (held bool) {
	held = r.waits
	r.release()
	return held
}

// Close ends r: its request is no longer in flight, and the prefill tokens it
// may still hold are released. It reports whether prefill tokens were held.
// Closing twice, or closing the zero value, does nothing.
func (l *Ledger) Close(r *Reservation) (held bool) {
	if !r.open {
		return false
	}
	held = l.Release(r)
	r.open = false
	r.upstream.requests = max(r.upstream.requests-1, 0)
	return held
}

// Completed notes how long a request that ended well took.
func (l *Ledger) Completed(took time.Duration) { l.durations.add(took) }

// Typical is how long a request takes: the median of the last ones that ended
// well, 0 while there was none.
func (l *Ledger) Typical() time.Duration { return l.durations.median() }

// Failed keeps the load of a failed request on u for the median request time
// of the fleet, at least a second.
func (l *Ledger) Failed(u *Upstream, now time.Time) {
	u.failed.add(now, max(l.durations.median(), time.Second))
}
