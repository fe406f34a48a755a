// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"time"
)

// Upstream holds the counters of one upstream.
type Upstream struct {
	name     string
	requests int
	peak     int
	prefill  int
	waiting  waitingList
	failed   failedLoad

	// peers is what other routers hold here, and peersPeak the most requests of
	// theirs since the last look
	peers     Load
	peersPeak int

	// placed is assigned as this router alone made it
	placed uint64

	// assigned orders upstreams by when a request with a prompt was last placed
	// there, and called by when any other one was: neither kind decides the
	// other's ties. Upstreams that were never chosen have a random negative
	// value, so that several routers in front of one fleet begin in different
	// places.
	assigned, called int64
}

// lastChosen is the order in which ties go.
func (u *Upstream) lastChosen(prefills bool) int64 {
	if prefills {
		return u.assigned
	}
	return u.called
}

// Name is the dial address that the upstream is known by.
func (u *Upstream) Name() string { return u.name }

// Requests is how many requests are in flight.
func (u *Upstream) Requests() int { return u.requests }

// TakePeak returns the most requests that were in flight at any moment since
// the last call.
func (u *Upstream) TakePeak() int {
	peak := u.peak
	u.peak = u.requests
	return peak
}

// Prefill is how many prefill tokens are reserved and not yet released.
func (u *Upstream) Prefill() int { return u.prefill }

// Ahead is how many tokens have to be computed before the next first output, as
// far as is known: those of the oldest request that is to show one, and of what
// was there before it. It is 0 where none is.
func (u *Upstream) Ahead() int {
	r := u.waiting.first
	for r != nil && r.silent {
		r = r.next
	}
	if r == nil {
		return 0
	}
	return r.ahead
}

// Waiting is how many requests hold prefill tokens, which is to say have shown
// no output yet.
func (u *Upstream) Waiting() int { return u.waiting.len }

// Failed is the load that failed dispatches still stand for, in requests.
func (u *Upstream) Failed(now time.Time) float64 { return u.failed.load(now) }

// Idle reports that nothing is reserved here.
func (u *Upstream) Idle() bool { return u.requests == 0 && u.waiting.len == 0 && u.prefill == 0 }

func (u *Upstream) load(now time.Time) float64 {
	return float64(u.requests+u.peers.Requests) + u.failed.load(now)
}

// failedLoad is the load of dispatches that failed at once. An engine that
// answers errors in a millisecond has no requests in flight and would draw
// every request, so each failure counts as a request for as long as one
// normally takes. It decays instead of ending, which needs neither a timer nor
// a list that grows with the failures: at a steady rate of failures both stand
// for the same load.
type failedLoad struct {
	amount float64
	at     time.Time
	decay  time.Duration
}

// failedFloor is the load under which the rest of a decay is dropped.
const failedFloor = 0.01

func (f *failedLoad) load(now time.Time) float64 {
	if f.amount == 0 {
		return 0
	}
	amount := f.amount * math.Exp(-max(now.Sub(f.at).Seconds(), 0)/f.decay.Seconds())
	if amount < failedFloor {
		return 0
	}
	return amount
}

func (f *failedLoad) add(now time.Time, decay time.Duration) {
	f.amount = f.load(now) + 1
	f.at, f.decay = now, decay
}
