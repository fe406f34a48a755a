// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// Count is how many durations were counted.
func (h *Histogram) Count() (count uint64) {
	for _, n := range h.counts {
		count += n
	}
	return count
}

// Add counts all that other has counted, too.
func (h *Histogram) Add(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.sum += other.sum
}

// Since returns what was counted after h was as before: all of it where h has
// begun anew since.
func (h Histogram) Since(before Histogram) Histogram {
	later := Histogram{sum: h.sum - before.sum}
	for i, n := range h.counts {
		if n < before.counts[i] {
			return h
		}
		later.counts[i] = n - before.counts[i]
	}
	return later
}

// Quantile estimates the duration that a part q of the durations, from 0 to 1, do
// not exceed. Those of a bucket are taken to be spread evenly over it, and those
// beyond the last bound to be as long as that. It is 0 where none was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	var lower, below float64
	for i, bound := range firstOutputBounds {
		n := float64(h.counts[i])
		if n > 0 && below+n >= rank {
			return time.Duration((lower + (bound-lower)*(rank-below)/n) * float64(time.Second))
		}
		lower, below = bound, below+n
	}
	if h.counts[len(firstOutputBounds)] == 0 {
		return 0
	}
	return time.Duration(lower * float64(time.Second))
}
