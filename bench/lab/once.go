// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/sim"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// hopeless is the mean prefill queue at which a run counts as overloaded, as a
// multiple of the limit.
const hopeless = 10

// once runs one rule at one rate with one seed.
func (s *settings) once(rule string, rate float64, seed uint64) sim.Result {
	c := sim.Config{
		Engines:  s.Engines,
		Engine:   vllmsim.Config{BlockTokens: s.blockTokens, KVTokens: s.KVTokens},
		Warmup:   s.Warmup,
		Duration: s.Duration,
		Sigma:    s.sigma,
		Seed:     seed,
		Retries:  2,
		Hold:     s.hold,
		Overtake: s.overtake,
		Scene:    s.scene,
	}
	if s.scene != sim.SceneNone {
		c.Patience = s.patience
	}
	if s.capacity {
		c.Hopeless = hopeless * s.Limit
	}
	random := rand.New(rand.NewPCG(seed, 0))
	return sim.Run(c, s.arrivals(s, rate, seed), func() rules.Rule {
		return rules.New(rule, rules.Config{
			Engines:     s.Engines,
			IndexTokens: s.options.KVTokens,
			PrefillRate: vllmsim.New(c.Engine).Config().PrefillRate,
			Options:     s.options,
			Routers:     s.routers,
			Shared:      s.shared,
			Random:      random,
		})
	})
}

// under reports whether a run has kept the limit.
func (s *settings) under(r sim.Result) bool {
	return !r.Overloaded && r.TTFT.P95 <= s.Limit.Seconds()
}

// mean is the mean of runs with different seeds.
func mean(results []sim.Result) sim.Result {
	var sum sim.Result
	n := float64(len(results))
	for _, r := range results {
		sum.Overloaded = sum.Overloaded || r.Overloaded
		sum.Requests += r.Requests
		sum.Lost += r.Lost
		sum.TTFT.P50 += r.TTFT.P50 / n
		sum.TTFT.P90 += r.TTFT.P90 / n
		sum.TTFT.P95 += r.TTFT.P95 / n
		sum.TTFT.P99 += r.TTFT.P99 / n
		sum.TTFT.Max += r.TTFT.Max / n
		sum.SlowOutput += r.SlowOutput / n
		sum.HitRate += r.HitRate / n
		sum.Spread += r.Spread / n
		sum.Moves += r.Moves / n
		sum.Scene = addAround(sum.Scene, r.Scene, n)
		sum.Work = addAround(sum.Work, r.Work, n)
	}
	return sum
}

// addAround adds one of n runs to their mean.
func addAround(sum, one *sim.Around, n float64) *sim.Around {
	if one == nil {
		return sum
	}
	if sum == nil {
		sum = new(sim.Around)
	}
	sum.Before += one.Before / n
	sum.First += one.First / n
	sum.Second += one.Second / n
	sum.Later += one.Later / n
	return sum
}

// seedOf is the seed of the n-th run.
func (s *settings) seedOf(n int) uint64 { return s.seed + uint64(n) }
