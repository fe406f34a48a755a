// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"testing"
)

// counts is a report of prefix hits.
func counts(hits float64) Report { return Report{PrefixHits: Known(hits)} }

func wantBelief(t *testing.T, e *Engine, want, within float64) {
	t.Helper()
	if got := e.Belief(); math.IsNaN(got) || math.Abs(got-want) > within {
		t.Errorf("Belief() = %v, want %v", got, want)
	}
}

func TestBeliefNeedsEnough(t *testing.T) {
	tests := []struct {
		name            string
		predicted, hits int
		want            float64
	}{
		{"nothing", 0, 0, 1},
		{"hits that nobody predicted", 0, 1_000_000, 1},
		{"too little", beliefTokens - 1, 0, 1},
		{"just enough", beliefTokens, beliefTokens / 4, 0.25},
		{"none was real", beliefTokens, 0, 0},
		{"all were", beliefTokens, beliefTokens, 1},
		{"more than predicted", beliefTokens, 10 * beliefTokens, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			e.Observe(counts(5000), 0, start, valid)
			e.Predicted(test.predicted)
			wantBelief(t, &e, 1, 0)
			e.Observe(counts(5000+float64(test.hits)), 0, seconds(1), valid)
			wantBelief(t, &e, test.want, 1e-9)
		})
	}
}

// Of two data-parallel engines behind one address only one has what a request
// finds.
func TestBeliefSettlesAtHalf(t *testing.T) {
	var e Engine
	hits := 0.0
	for i := range 1000 {
		e.Observe(counts(hits), 0, seconds(float64(i)), valid)
		e.Predicted(20_000)
		if i%2 == 0 {
			hits += 20_000
		}
	}
	wantBelief(t, &e, 0.5, 0.02)
}

// What was true some hundred turns ago is forgotten, also where hits of others
// had been taken for predicted ones, or a page was absurd.
func TestBeliefForgets(t *testing.T) {
	tests := []struct {
		name  string
		share float64 // before
	}{
		{"all were real", 1},
		{"none was", 0},
		{"others had a hundred times as many", 100},
		{"an absurd page", 1e300},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			hits, now := 0.0, 0.0
			turns := func(n int, share float64) {
				for range n {
					e.Predicted(20_000)
					hits += 20_000 * share
					now++
					e.Observe(counts(hits), 0, seconds(now), valid)
				}
			}
			e.Observe(counts(0), 0, start, valid)
			turns(200, test.share)
			// started anew, as no number holds a sum of the two
			hits = 0
			e.Observe(counts(0), 0, seconds(now), valid)
			turns(400, 0.5)
			wantBelief(t, &e, 0.5, 0.1)
		})
	}
}

// What was predicted counts only against hits of the same time.
func TestBeliefComparesTheSameTime(t *testing.T) {
	const n = beliefTokens
	tests := []struct {
		name string
		do   func(e *Engine)
		want float64
	}{
		{"before the first report", func(e *Engine) {
			e.Predicted(n)
			e.Observe(counts(9), 0, start, valid)
		}, 1},
		{"a restart in between", func(e *Engine) {
			e.Observe(counts(1000), 0, start, valid)
			e.Predicted(n)
			e.Observe(counts(0), 0, seconds(1), valid)
		}, 1},
		{"after a restart", func(e *Engine) {
			e.Observe(counts(10*n), 0, start, valid)
			e.Predicted(n)
			e.Observe(counts(0), 0, seconds(1), valid)
			e.Predicted(n)
			e.Observe(counts(n/2), 0, seconds(2), valid)
		}, 0.5},
		{"falling asleep in between", func(e *Engine) {
			e.Observe(counts(0), 0, start, valid)
			e.Predicted(n)
			r := counts(n / 2)
			r.Asleep = true
			e.Observe(r, 0, seconds(1), valid)
		}, 0.5},
		{"a page without hits in between", func(e *Engine) {
			e.Observe(counts(0), 0, start, valid)
			e.Predicted(n)
			e.Observe(Report{}, 0, seconds(1), valid)
			e.Predicted(n)
			e.Observe(counts(2*n), 0, seconds(2), valid)
			wantBelief(t, e, 1, 0)
			e.Predicted(n)
			e.Observe(counts(2*n+n/2), 0, seconds(3), valid)
		}, 0.5},
		{"no page for an hour", func(e *Engine) {
			e.Observe(counts(0), 0, start, valid)
			e.Predicted(n)
			e.Observe(counts(n/2), 0, seconds(3600), valid)
		}, 0.5},
		{"no page has hits", func(e *Engine) {
			for i := range 9 {
				e.Observe(load(1, 1), 0, seconds(float64(i)), valid)
				e.Predicted(n)
			}
		}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			test.do(&e)
			wantBelief(t, &e, test.want, 1e-9)
		})
	}
}

// The usage of responses tells the same as the engine's counter, and counts
// where there is none.
func TestBeliefOfUsage(t *testing.T) {
	tests := []struct {
		name   string
		report *Report
		after  float64
		want   float64
	}{
		{name: "no report", want: 0.25},
		{name: "a report without hits", report: &Report{Running: Known(1)}, want: 0.25},
		{name: "a report with hits", report: &Report{PrefixHits: Known(0)}, want: 1},
		{name: "one that is too old", report: &Report{PrefixHits: Known(0)}, after: valid.Seconds(), want: 0.25},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			if test.report != nil {
				e.Observe(*test.report, 0, start, valid)
			}
			for range 10 {
				e.Cached(beliefTokens/10, beliefTokens/40, seconds(test.after))
			}
			wantBelief(t, &e, test.want, 1e-9)
		})
	}
}
