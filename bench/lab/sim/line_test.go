// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
)

// prompts arrive one after the other, every so often, with nothing in common.
func prompts(every time.Duration, tokens ...int) workload.Arrivals {
	n := 0
	return func() (time.Duration, *workload.Script, bool) {
		if n == len(tokens) {
			return 0, nil, false
		}
		blocks := make([]uint64, tokens[n]/blockTokens)
		for k := range blocks {
			blocks[k] = uint64(n)<<32 | uint64(k)
		}
		at := time.Duration(n) * every
		q := workload.Request{Tokens: tokens[n], Blocks: blocks, Output: 1, Streamed: true}
		n++
		return at, workload.Single(q), true
	}
}

// The first prompt takes 4 seconds, the second one 2 and the third one a tenth:
// whoever of the latter goes first decides the median.
func TestHeldRequestsGoShortestFirst(t *testing.T) {
	c := fleetOf(1)
	c.Warmup, c.Hold = 0, 8192
	for _, test := range []struct{ overtake, low, high float64 }{
		{0, 5.5, 6.5},
		{10, 3.9, 4.3},
	} {
		c.Overtake = test.overtake
		r := Run(c, prompts(100*time.Millisecond, 48_000, 24_000, 1200), maker(rules.LoadAware, c))
		if p50 := r.TTFT.P50; p50 < test.low || p50 > test.high || r.Requests != 3 {
			t.Errorf("overtake %v: TTFT p50 of %d requests is %.2f s, want %v to %v s of 3", test.overtake, r.Requests, p50, test.low, test.high)
		}
	}
}

// Short prompts come a little faster than they are served. The long one among
// them waits for those that come within its time, and for no more.
func TestHeldRequestsAreOvertakenForAWhile(t *testing.T) {
	c := fleetOf(1)
	c.Warmup, c.Hold = 0, 8192
	tokens := make([]int, 1000)
	for i := range tokens {
		tokens[i] = 1200
	}
	tokens[100] = 24_000 // due after 10 seconds, when the backlog is about 3
	for _, test := range []struct{ overtake, low, high float64 }{
		{5, 10, 25},
		{1000, 50, 200},
	} {
		c.Overtake = test.overtake
		r := Run(c, prompts(90*time.Millisecond, tokens...), maker(rules.LoadAware, c))
		if longest := r.TTFT.Max; longest < test.low || longest > test.high {
			t.Errorf("overtake %v: the longest TTFT is %.2f s, want %v to %v s", test.overtake, longest, test.low, test.high)
		}
	}
}
