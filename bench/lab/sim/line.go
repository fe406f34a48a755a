// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
	"time"
)

// hop is how long a request that was held takes from the router to its engine.
const hop = 2 * time.Millisecond

// dispatch sends a placed request to its engine, or puts it into the engine's
// line in the router, in the order in which requests are due.
func (r *run) dispatch(a *attempt) {
	r.live[&a.request] = a
	if r.Hold == 0 {
		r.submit(a)
		return
	}
	e := r.engines[a.engine]
	a.own = max(a.seen.Prefill(), 1)
	a.due = r.now + time.Duration(r.Overtake*float64(a.own)/e.Engine.Config().PrefillRate*float64(time.Second))
	at, _ := slices.BinarySearchFunc(e.line, a, func(x, y *attempt) int {
		// those that are due together go in order of arrival
		return cmp.Or(cmp.Compare(x.due, y.due), -1)
	})
	e.line = slices.Insert(e.line, at, a)
	r.release(e)
}

// release sends what the engine has room for.
func (r *run) release(e *engine) {
	for len(e.line) > 0 {
		a := e.line[0]
		if e.ahead > 0 && e.ahead+a.own > r.Hold {
			return
		}
		e.line = slices.Delete(e.line, 0, 1)
		e.ahead += a.own
		r.at(r.now+hop, func() { r.submit(a) })
	}
}

// prefilled makes the room of a held request free. The router is taken to know
// this of answers too that show nothing before they are complete.
func (r *run) prefilled(a *attempt) {
	if a.own > 0 {
		e := r.engines[a.engine]
		e.ahead -= a.own
		r.release(e)
	}
}
