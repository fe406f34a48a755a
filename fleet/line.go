// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"iter"
	"slices"
)

// line holds the waiting requests of one class in their order. The clients take
// turns: the first request of each is in the ring, and whoever was granted one
// goes to the end of it with the next. The others follow in order of arrival;
// their turn has not come, but they may want an upstream that nobody before
// them does.
type line struct {
	// again are requests that have had their turn, and go first
	again []*Ticket

	ring, rest []*Ticket
}

func (l *line) len() int { return len(l.again) + len(l.ring) + len(l.rest) }

// all yields the requests in the order in which they are to be granted.
func (l *line) all() iter.Seq[*Ticket] {
	return func(yield func(*Ticket) bool) {
		for _, part := range [...][]*Ticket{l.again, l.ring, l.rest} {
			for _, t := range part {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// last is the request that everybody else goes before, nil if there is none.
func (l *line) last() (last *Ticket) {
	for _, part := range [...][]*Ticket{l.again, l.ring, l.rest} {
		if len(part) > 0 {
			last = part[len(part)-1]
		}
	}
	return last
}

func (l *line) add(t *Ticket) {
	switch {
	case t.Again:
		l.again = append(l.again, t)
	case slices.ContainsFunc(l.ring, func(o *Ticket) bool { return o.Client == t.Client }):
		l.rest = append(l.rest, t)
	default:
		l.ring = append(l.ring, t)
	}
}

// remove takes t out of the line. If it was its client's turn, the client's next
// request takes its place in the ring, or the end of it if t was granted.
func (l *line) remove(t *Ticket, granted bool) {
	if remove(&l.again, t) || remove(&l.rest, t) {
		return
	}
	at := slices.Index(l.ring, t)
	next := slices.IndexFunc(l.rest, func(o *Ticket) bool { return o.Client == t.Client })
	switch {
	case next < 0:
		remove(&l.ring, t)
		return
	case granted:
		remove(&l.ring, t)
		l.ring = append(l.ring, l.rest[next])
	default:
		l.ring[at] = l.rest[next]
	}
	l.rest = slices.Delete(l.rest, next, next+1)
}

func remove(list *[]*Ticket, t *Ticket) bool {
	at := slices.Index(*list, t)
	if at < 0 {
		return false
	}
	*list = slices.Delete(*list, at, at+1)
	return true
}
