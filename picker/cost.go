// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"time"
)

// NeverEvicts is the [Candidate.Age] of an upstream that has room for more
// blocks: its price has no eviction term.
const NeverEvicts time.Duration = math.MaxInt64

// evictionHalf is the age at which evicting a block costs half of what
// evicting one in use costs: the think time of most agent sessions is below
// it, and a block that nobody wanted for ten minutes is nearly free.
const evictionHalf = 60 * time.Second

// Weights are the constants of the cost. The zero value scores by prefill
// tokens alone; [DefaultWeights] is what the policy starts from.
type Weights struct {
	// RequestCost is what one request in flight costs, in tokens.
	RequestCost float64

	// Congestion is what an avoidable token costs more for each request that
	// waits for its first output. 0 makes tokens cost the same however crowded
	// the fleet is.
	Congestion float64

	// Eviction is what an uncached token costs more on an upstream that has to
	// evict a block in use to hold it. 0 ignores eviction.
	Eviction float64

	// Stickiness is how many tokens a session's home may cost more than the
	// best upstream before the session moves.
	Stickiness float64
}

// DefaultWeights returns the weights that an unconfigured policy uses.
// BENCHMARKS.md shows the workloads they were chosen on.
func DefaultWeights() Weights {
	return Weights{RequestCost: 4096, Congestion: 2, Eviction: 4, Stickiness: 32768}
}

// Candidate is one upstream that may take a request, with what is known of it
// at this moment.
type Candidate struct {
	// Upstream holds the counters. It must not be nil.
	Upstream *Upstream

	// Uncached is how many tokens of the prompt this upstream is not believed
	// to hold in its prefix cache.
	Uncached int

	// Cached is how many tokens of the prompt the upstream is believed to hold
	// by the index alone, which Uncached may trust in only in part. The picker
	// does not look at it.
	Cached int

	// Age is how long ago the block that this upstream would evict next was
	// last used, or [NeverEvicts].
	Age time.Duration

	// Others is how many requests the upstream has from elsewhere.
	Others float64

	// Speed is how fast the upstream prefills, relative to the others. The
	// tokens in its queue and those it would add are divided by the square root
	// of it. 0 is 1.
	//
	// The root, because only half of what a token costs is time: the room that
	// it takes in the cache is worth the same on a slow upstream. Divided by
	// all of it, sessions crowd on the fast ones and evict each other
	// (BENCHMARKS.md, scene slow).
	Speed float64

	// Terms and Cost, their sum, are set by [Weights.Score].
	Terms Terms
	Cost  float64
}

// Terms are what a cost is the sum of, all in tokens.
type Terms struct {
	// Load is what the requests there cost, and Prefill the prefill tokens that
	// they hold.
	Load, Prefill float64

	// Uncached is what the request would have computed there, Eviction what that
	// costs by what it evicts, and Delay by whom it delays without need.
	Uncached, Eviction, Delay float64
}

// Sum is the cost.
func (t *Terms) Sum() float64 { return t.Load + (t.Prefill + t.Uncached) + t.Eviction + t.Delay }

// Score sets the cost of every candidate as of now.
func (w *Weights) Score(candidates []Candidate, now time.Time) {
	waiting, least := 0, math.MaxInt
	for i := range candidates {
		waiting += candidates[i].Upstream.allWaiting()
		least = min(least, candidates[i].Uncached)
	}
	mean := float64(waiting) / float64(max(len(candidates), 1))
	for i := range candidates {
		c := &candidates[i]
		u := c.Upstream
		slowness := 1.0
		if c.Speed != 0 && c.Speed != 1 {
			slowness = 1 / math.Sqrt(c.Speed)
		}
		c.Terms = Terms{
			Load:     w.RequestCost * (u.load(now) + c.Others),
			Prefill:  float64(u.prefill+u.peers.Prefill) * slowness,
			Uncached: float64(c.Uncached) * slowness,
			Eviction: w.eviction(c.Age) * float64(c.Uncached),
			Delay:    w.delay(mean, u.allWaiting()) * float64(c.Uncached-least),
		}
		c.Cost = c.Terms.Sum()
	}
}

// eviction returns what one uncached token costs by what it evicts.
func (w *Weights) eviction(age time.Duration) float64 {
	if age == NeverEvicts {
		return 0
	}
	return w.Eviction / (1 + max(age.Seconds(), 0)/evictionHalf.Seconds())
}

// delay returns what one avoidable token costs the others, on an upstream where
// waiting requests wait while mean wait on a candidate on average.
//
// The mean is what an uncached token does to the fleet; waiting + 1 bounds it
// by what it can do on this upstream. Without the bound an idle upstream is
// priced as if it were crowded, and a burst over one shared prompt queues on
// the only upstream that holds it.
func (w *Weights) delay(mean float64, waiting int) float64 {
	return w.Congestion * min(mean, float64(waiting+1))
}

// tie is the cost difference, in tokens, below which two upstreams are equal:
// estimates are no finer than that.
const tie = 1.0

// Pick returns the index of the candidate with the lowest cost, or -1 where
// there is none. Among costs within one token of the lowest it takes the one
// that was least recently chosen for a request of the same kind, with a prompt
// or without, whatever the order of the list: slow sequential traffic finds no
// load at any pick, and would otherwise all land on one upstream.
func Pick(candidates []Candidate, prefills bool) int {
	lowest := math.Inf(1)
	for i := range candidates {
		lowest = min(lowest, candidates[i].Cost)
	}
	best := -1
	for i := range candidates {
		if candidates[i].Cost > lowest+tie {
			continue
		}
		if best < 0 || candidates[i].Upstream.lastChosen(prefills) < candidates[best].Upstream.lastChosen(prefills) {
			best = i
		}
	}
	return best
}
