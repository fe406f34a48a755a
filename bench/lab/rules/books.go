// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prefixes"
)

// books is what a router can count by itself: requests in flight and prefill
// tokens that have shown no output yet. Rules embed it.
type books struct {
	engines []account
	owner   prefixes.Owner
}

type account struct {
	inFlight int
	prefill  int
	index    prefixes.Index
}

// entry is what a placed request holds in the books.
type entry struct {
	engine  int
	prefill int
	owner   prefixes.Owner
}

func newBooks(c Config) books {
	b := books{engines: make([]account, c.Engines)}
	for i := range b.engines {
		b.engines[i].index.Resize(c.IndexTokens / fleet.BlockTokens)
	}
	return b
}

// enter places r on an engine with that many prefill tokens.
func (b *books) enter(r *Request, engine, prefill int) int {
	a := &b.engines[engine]
	a.inFlight++
	a.prefill += prefill
	r.entry = entry{engine: engine, prefill: prefill}
	return engine
}

// record notes that the engine of r will hold its prompt.
func (b *books) record(r *Request, now time.Duration) {
	b.owner++
	r.entry.owner = b.owner
	index := &b.engines[r.entry.engine].index
	index.Record(r.Blocks, b.owner, clock(now))
	index.Settle()
}

// matched is how many tokens of r the engine is believed to hold, and uncached
// how many it is not.
func (b *books) matched(r *Request, engine int) int {
	return min(b.engines[engine].index.Match(r.Blocks)*fleet.BlockTokens, r.Tokens)
}

func (b *books) uncached(r *Request, engine int) int { return r.Tokens - b.matched(r, engine) }

// FirstOutput gives the prefill tokens back.
func (b *books) FirstOutput(r *Request, _ time.Duration) {
	b.engines[r.entry.engine].prefill -= r.entry.prefill
	r.entry.prefill = 0
}

// End gives everything back, and what a failed request was to bring into the
// cache.
func (b *books) End(r *Request, now time.Duration, o Outcome) {
	b.FirstOutput(r, now)
	a := &b.engines[r.entry.engine]
	a.inFlight--
	if o == Failed && r.entry.owner != 0 {
		a.index.TakeBack(r.Blocks, r.entry.owner)
	}
}

// clock is virtual time for packages that know only the other kind.
func clock(now time.Duration) time.Time { return time.Unix(0, 0).Add(now) }

// least returns the engine of which cost is lowest. Engines of equal cost are
// equally likely.
func least(c Config, engines []int, cost func(engine int) float64) int {
	best, equal, lowest := -1, 0, 0.0
	for _, engine := range engines {
		switch value := cost(engine); {
		case best < 0 || value < lowest:
			best, equal, lowest = engine, 1, value
		case value == lowest:
			if equal++; c.Random.IntN(equal) == 0 {
				best = engine
			}
		}
	}
	return best
}
