// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import "time"

// Reservation is what one placed request holds on its upstream. The zero value
// holds nothing. A Reservation must not be copied while it is open.
type Reservation struct {
	upstream *Upstream
	tokens   int

	// ahead is how many prefill tokens the upstream held right after this
	// reservation was made, its own and those of other routers included
	ahead   int
	started time.Time
	open    bool
	waits   bool
	silent  bool

	// neighbours in the list of the upstream's waiting reservations
	prev, next *Reservation
}

// Upstream is where the reservation was made, nil for the zero value.
func (r *Reservation) Upstream() *Upstream { return r.upstream }

// Tokens is how many prefill tokens were reserved, also after their release.
func (r *Reservation) Tokens() int { return r.tokens }

// Started is when the reservation was made.
func (r *Reservation) Started() time.Time { return r.started }

// Open reports that the request is in flight.
func (r *Reservation) Open() bool { return r.open }

// Waits reports that the reservation holds prefill tokens.
func (r *Reservation) Waits() bool { return r.waits }

func (r *Reservation) release() {
	if !r.waits {
		return
	}
	r.upstream.waiting.remove(r)
	r.upstream.prefill = max(r.upstream.prefill-r.tokens, 0)
}

// waitingList links the reservations that hold prefill tokens in the order they
// were made. It lives inside the reservations, so a pick allocates nothing.
type waitingList struct {
	first, last *Reservation
	len         int
}

func (l *waitingList) push(r *Reservation) {
	r.waits = true
	r.prev = l.last
	if l.last == nil {
		l.first = r
	} else {
		l.last.next = r
	}
	l.last = r
	l.len++
}

func (l *waitingList) remove(r *Reservation) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.waits = nil, nil, false
	l.len--
}
