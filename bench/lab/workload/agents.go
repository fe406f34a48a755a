// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math/rand/v2"
	"time"
)

// Agents is the workload of coding agents: sessions of 10 to 40 turns in which
// every prompt repeats the one before it, its answer, and something new.
//
// Half of the first prompts are about 8,000 tokens long, the others about
// 30,000; six of ten begin with the tools and the system prompt of one of three
// applications. A turn adds 600 tokens in the median, an answer has 250, and
// the client thinks for 10 seconds.
type Agents struct {
	// Rate is how many sessions begin per second.
	Rate float64
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the sessions.
	Seed uint64
	// Within is how long the sessions take to join that began before the run.
	Within time.Duration
}

// longestAgent bounds the time that a session takes on a fleet with little load.
const longestAgent = 40 * 6 * time.Minute

// Arrivals returns the sessions.
func (a Agents) Arrivals() Arrivals {
	return Midway(Poisson(a.Rate, a.Seed, a.session), a.Rate, a.Seed, a.Within, longestAgent, a.session)
}

// session makes one session.
func (a Agents) session(seed uint64) *Script {
	r := random(seed)
	t, tokens := a.opening(r, seed)
	steps := make([]Step, 10+r.IntN(31))
	prompts, outputs := make([]int, len(steps)), make([]int, len(steps))
	for i := range steps {
		if i > 0 {
			tokens += outputs[i-1] + int(logNormal(r, 600, 1, 100, 8000))
			steps[i].Think = seconds(logNormal(r, 10, 1, 1, 300))
		}
		prompts[i], outputs[i] = tokens, int(logNormal(r, 250, 0.7, 50, 2000))
		steps[i].Took = typical(outputs[i])
	}
	return &Script{Steps: steps, Request: func(step int) Request {
		q := t.request(prompts[step], outputs[step])
		q.Session = seed
		return q
	}}
}

// opening draws the first prompt of a session and whom it shares its beginning
// with.
func (a Agents) opening(r *rand.Rand, seed uint64) (*text, int) {
	tokens, shared := int(logNormal(r, 8000, 0.2, 5500, 15_000)), 5000
	if r.IntN(2) == 1 {
		tokens, shared = int(logNormal(r, 30_000, 0.2, 15_000, 60_000)), 12_000
	}
	application := mix(useText, a.Seed, uint64(shared), r.Uint64N(3))
	if r.IntN(10) >= 6 {
		shared = 0
	}
	return newText(a.BlockTokens, application, shared, seed), tokens
}

// typical is about how long an answer takes on an engine with little load.
func typical(output int) time.Duration {
	return time.Second + time.Duration(output)*12*time.Millisecond
}
