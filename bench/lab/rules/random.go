// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// random places a request anywhere.
type random struct {
	books
	config Config
}

func newRandom(c Config) Rule { return &random{books: newBooks(c), config: c} }

func (p *random) Place(r *Request, _ time.Duration, v View) int {
	return p.enter(r, v.Usable[p.config.Random.IntN(len(v.Usable))], 0)
}
