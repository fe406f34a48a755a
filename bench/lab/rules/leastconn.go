// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// leastConn places a request where the fewest are in flight.
type leastConn struct {
	books
	config Config
}

func newLeastConn(c Config) Rule { return &leastConn{books: newBooks(c), config: c} }

func (p *leastConn) Place(r *Request, _ time.Duration, v View) int {
	return p.enter(r, least(p.config, v.Usable, func(engine int) float64 {
		return float64(p.engines[engine].inFlight)
	}), 0)
}
