// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import "time"

// warmShare is the matched share of a prompt from which an engine is warm.
const warmShare = 0.8

// affinity places a request on the engine that holds most of it, if that is at
// least 0.8 of the prompt and the engine's prefill queue is no more than limit
// longer than the shortest one. Any other request goes where the prefill queue
// and its own uncached tokens are least. It is the prefix affinity filter of
// llm-d with a limit on the time to the first token that it may cost.
type affinity struct {
	books
	config Config
	limit  time.Duration
}

func newAffinity(c Config, limit time.Duration) Rule {
	return &affinity{books: newBooks(c), config: c, limit: limit}
}

func (p *affinity) Place(r *Request, now time.Duration, v View) int {
	engine := p.choose(r, v)
	p.enter(r, engine, p.uncached(r, engine))
	p.record(r, now)
	return engine
}

func (p *affinity) choose(r *Request, v View) int {
	shortest := p.engines[v.Usable[0]].prefill
	for _, engine := range v.Usable {
		shortest = min(shortest, p.engines[engine].prefill)
	}
	// a tie of matches goes to the shorter queue
	warmest := least(p.config, v.Usable, func(engine int) float64 {
		return float64(p.engines[engine].prefill)*1e-9 - float64(p.matched(r, engine))
	})
	gap := float64(p.engines[warmest].prefill-shortest) / p.config.PrefillRate
	if float64(p.matched(r, warmest)) >= warmShare*float64(r.Tokens) && gap <= p.limit.Seconds() {
		return warmest
	}
	return least(p.config, v.Usable, func(engine int) float64 {
		return float64(p.engines[engine].prefill + p.uncached(r, engine))
	})
}
