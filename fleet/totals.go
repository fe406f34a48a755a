// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// Totals only grow while the fleet knows the upstream.
type Totals struct {
	// PromptTokens and PrefillTokens are the estimates of what was placed
	// here: whole prompts, and what of them was not believed to be cached.
	PromptTokens, PrefillTokens uint64

	// Placements counts placed requests by [Reason].
	Placements [reasons]uint64

	// Releases counts by [Cause] what gave prefill tokens back. With nothing
	// in flight their sum is that of Placements.
	Releases [causes]uint64

	// PromptPredicted and PromptReported are the prompt tokens of responses that
	// report how many they were: what was estimated, and what was. A prompt that
	// goes on with an earlier response is left out: that is not in the estimate.
	PromptPredicted, PromptReported uint64

	// CachedPredicted and CachedReported are the tokens of responses that
	// report what was cached: what was believed to be, and what was.
	CachedPredicted, CachedReported uint64

	// ScrapeErrors counts reports that could not be had.
	ScrapeErrors uint64

	// FirstOutput is the time from placement to first output of streamed
	// responses.
	FirstOutput Histogram
}

// firstOutputBounds are the upper bounds of the buckets, in seconds: from a
// warm turn to a long prompt in a long queue.
var firstOutputBounds = [...]float64{0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120}

// Histogram counts durations by the bounds above.
type Histogram struct {
	counts [len(firstOutputBounds) + 1]uint64
	sum    float64
}

func (h *Histogram) observe(d time.Duration) {
	seconds := max(d.Seconds(), 0)
	at := 0
	for at < len(firstOutputBounds) && seconds > firstOutputBounds[at] {
		at++
	}
	h.counts[at]++
	h.sum += seconds
}

// Cumulative returns the count, the sum in seconds, and how many were at most
// each upper bound, as Prometheus wants a histogram.
func (h *Histogram) Cumulative() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(firstOutputBounds))
	for i, bound := range firstOutputBounds {
		count += h.counts[i]
		buckets[bound] = count
	}
	return count + h.counts[len(firstOutputBounds)], h.sum, buckets
}
