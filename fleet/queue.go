// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// NoRoom is what [Fleet.Place] returns where the request has to wait: every
// upstream that it could be placed on is at its limit, or others wait before it.
const NoRoom = -2

// Queue limits what the upstreams hold at once, and who may wait while they are
// at the limit. The zero value limits nothing. Each request is held to the
// limits of its own policy, whoever placed what an upstream holds; requests
// without a prompt are held to none.
type Queue struct {
	// MaxPrefillTokens is how many prefill tokens an upstream may hold. What
	// the request would add counts only if it holds some already, so that a
	// prompt that is longer than that can run alone. 0 is no limit.
	MaxPrefillTokens int

	// MaxRequests is how many requests with a prompt may be in flight on an
	// upstream. 0 is no limit.
	MaxRequests int

	// MaxWaiting is how many requests may wait in the whole fleet, and MaxWait
	// for how long each may.
	MaxWaiting int
	MaxWait    time.Duration
}

// limits reports that the request is held to limits.
func (q *Queue) limits(req *Request) bool {
	return req.Prefills && (q.MaxRequests > 0 || q.MaxPrefillTokens > 0)
}

// room reports that u may take a request with so many uncached tokens. The
// caller holds the lock.
func (q *Queue) room(u *upstream, uncached int) bool {
	if q.MaxRequests > 0 && u.inFlight() >= q.MaxRequests {
		return false
	}
	held := u.prefill()
	return q.MaxPrefillTokens == 0 || held == 0 || held+uncached <= q.MaxPrefillTokens
}

// Class says which requests are let go first. The set is closed; it is the
// `class` label of the metrics.
type Class uint8

const (
	// Interactive requests are those that somebody waits for.
	Interactive Class = iota
	// Batch requests go when no interactive one can, and with every
	// [BatchShare]th grant.
	Batch

	classes
)

var classNames = [classes]string{"interactive", "batch"}

func (c Class) String() string { return classNames[c] }

// Classes is how many classes there are: Class(0) to Class(Classes-1).
const Classes = int(classes)

// BatchShare is of how many grants one is for a batch request, while any waits:
// whatever else comes, batch work goes on.
const BatchShare = 8

// Refusal says why a request that had to wait was not placed. The set is
// closed; it is the `cause` label of the metrics.
type Refusal uint8

const (
	// RefusedFull is for one too many that waits.
	RefusedFull Refusal = iota
	// RefusedTimeout has waited for as long as it may.
	RefusedTimeout
	// RefusedCanceled has left by itself.
	RefusedCanceled

	refusals
)

var refusalNames = [refusals]string{"full", "timeout", "canceled"}

func (r Refusal) String() string { return refusalNames[r] }

// Refusals is how many refusals there are: Refusal(0) to Refusal(Refusals-1).
const Refusals = int(refusals)

// Ticket is a request that has to wait. Its exported fields are those of
// [Fleet.Place], and must stay as they are while it waits.
type Ticket struct {
	Placement *Placement
	Request   *Request
	Pool      *Pool
	Options   *Options

	// Usable reports that the upstream at a position of Pool may take a request
	// now. It is called with the fleet locked, by whoever makes room: it must
	// not block, and not call the fleet.
	Usable func(at int) bool

	// Class is the request's class, and Client a hash of whom it comes from:
	// the clients of a class take turns.
	Class  Class
	Client uint64

	// Again says that the request had its turn before and was failed by its
	// upstream. It goes before the others of its class.
	Again bool

	// Waited is how long the request has waited before, of the time that it
	// may.
	Waited time.Duration

	// Refusal says why the request was not placed, and RetryAfter when there
	// will be room for another one like it, as far as can be told. They are
	// set by [Fleet.Wait].
	Refusal    Refusal
	RetryAfter time.Duration

	// guarded by the fleet's lock

	state ticketState
	at    int
	since time.Time

	// tokens are the uncached tokens where most is cached, -1 while that is not
	// known
	tokens int

	// awaits is the home that the request waits for, nil if it goes anywhere
	awaits *upstream

	// usable is the result of Usable when it was last asked
	usable []int

	// wake has room for one signal: to look at the state, or at the fleet
	wake chan struct{}
}

type ticketState uint8

const (
	waits ticketState = iota
	granted
	refused
)

// lookEvery is how often the fleet is looked at for what makes room by time
// alone, or outside the fleet: the end of a cool-down or of a report's time, a
// reservation that expires, an upstream that Caddy has found to be well again.
const lookEvery = time.Second

// Wait waits until the request of t has its place, for as long as its policy
// lets it and until done is closed. It returns the position in the pool, or -1
// with the reason in t.Refusal. t must be new.
//
// The request is placed by whoever makes room, in the same step, so nobody gets
// in between: costs, sessions and standings are those of that moment.
func (f *Fleet) Wait(done <-chan struct{}, t *Ticket) int {
	began := time.Now()
	if f.join(t, began) {
		return t.at
	}
	deadline := began.Add(t.Options.Queue.MaxWait - t.Waited)
	timer := time.NewTimer(min(lookEvery, deadline.Sub(began)))
	defer timer.Stop()
	for {
		select {
		case <-t.wake:
			if f.look(t, 0, time.Now()) {
				return t.at
			}
		case <-done:
			f.leave(t, RefusedCanceled, time.Now())
			return t.at
		case <-timer.C:
			now := time.Now()
			if !now.Before(deadline) {
				f.leave(t, RefusedTimeout, now)
				return t.at
			}
			if f.look(t, lookEvery, now) {
				return t.at
			}
			timer.Reset(min(lookEvery, deadline.Sub(now)))
		}
	}
}
