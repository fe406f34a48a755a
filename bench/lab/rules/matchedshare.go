// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// matchedShare places a request where
//
//	matched share of the prompt - beta x relative load
//
// is highest; the relative load of an engine is its requests in flight as a
// share of the most that any engine has. It is the weighted sum of the routers
// of llm-d and Dynamo.
type matchedShare struct {
	books
	config Config
	beta   float64
}

func newMatchedShare(c Config, beta float64) Rule {
	return &matchedShare{books: newBooks(c), config: c, beta: beta}
}

func (p *matchedShare) Place(r *Request, now time.Duration, v View) int {
	most := 1
	for _, engine := range v.Usable {
		most = max(most, p.engines[engine].inFlight)
	}
	engine := least(p.config, v.Usable, func(engine int) float64 {
		share := float64(p.matched(r, engine)) / float64(max(r.Tokens, 1))
		return p.beta*float64(p.engines[engine].inFlight)/float64(most) - share
	})
	p.enter(r, engine, p.uncached(r, engine))
	p.record(r, now)
	return engine
}
