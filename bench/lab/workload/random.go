// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"math"
	"math/rand/v2"
)

// random returns the random numbers that the parts name.
func random(parts ...uint64) *rand.Rand {
	name := mix(parts...)
	return rand.New(rand.NewPCG(name, scramble(name)))
}

// The first part of what a random source is named by, so that no two uses draw
// the same numbers.
const (
	useArrivals uint64 = iota
	useClient
	useEarlierArrivals
	useEarlierClient
	useText
)

// logNormal draws from the log-normal distribution with the given median and
// sigma, cut to low and high.
func logNormal(r *rand.Rand, median, sigma, low, high float64) float64 {
	return min(max(median*math.Exp(sigma*r.NormFloat64()), low), high)
}

// logUniform draws a number between low and high of which every factor is
// equally likely.
func logUniform(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}
