// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// roundRobin places requests on one engine after the other.
type roundRobin struct {
	books
	next int
}

func newRoundRobin(c Config) Rule { return &roundRobin{books: newBooks(c)} }

func (p *roundRobin) Place(r *Request, _ time.Duration, v View) int {
	p.next++
	return p.enter(r, v.Usable[(p.next-1)%len(v.Usable)], 0)
}
