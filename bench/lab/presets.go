// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/workload"
)

// preset is a workload and the fleet that it runs on unless flags say
// otherwise.
type preset struct {
	Workload string
	Rate     float64
	Engines  int
	KVTokens int
	Limit    time.Duration
	Warmup   time.Duration
	Duration time.Duration

	replay   bool
	arrivals func(s *settings, rate float64, seed uint64) workload.Arrivals
}

func presetNames() []string { return slices.Sorted(maps.Keys(presets)) }

// joining is the part of the warm-up in which sessions join that began before
// it.
const joining = 2.0 / 3

func (p *preset) within() time.Duration { return time.Duration(joining * float64(p.Warmup)) }

// presets are the workloads by name.
var presets = map[string]preset{
	"agents": {
		Rate: 0.1, Engines: 4, KVTokens: 600_000, Limit: 4 * time.Second, Warmup: 15 * time.Minute, Duration: 30 * time.Minute,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.Agents{Rate: rate, BlockTokens: s.blockTokens, Seed: seed, Within: s.within()}.Arrivals()
		},
	},
	"documents": {
		Rate: 2, Engines: 4, KVTokens: 600_000, Limit: 5 * time.Second, Warmup: 5 * time.Minute, Duration: 30 * time.Minute,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.Documents{Rate: rate, Count: 50, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"hot-document": {
		Rate: 5, Engines: 4, KVTokens: 600_000, Limit: 5 * time.Second, Warmup: 5 * time.Minute, Duration: 30 * time.Minute,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.HotDocument{Rate: rate, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"unshared": {
		Rate: 4, Engines: 4, KVTokens: 600_000, Limit: 5 * time.Second, Warmup: 3 * time.Minute, Duration: 30 * time.Minute,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.Unshared{Rate: rate, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"long-outputs": {
		Rate: 1, Engines: 4, KVTokens: 600_000, Limit: 5 * time.Second, Warmup: 15 * time.Minute, Duration: 30 * time.Minute,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.LongOutputs{Rate: rate, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"bursts": {
		Rate: 1.0 / 180, Engines: 3, KVTokens: 5_000_000, Limit: 200 * time.Second, Warmup: time.Minute, Duration: time.Hour,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.Bursts{Rate: rate, Size: 128, Own: 32_000, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"bursts-shared": {
		Rate: 1.0 / 180, Engines: 3, KVTokens: 5_000_000, Limit: 60 * time.Second, Warmup: time.Minute, Duration: time.Hour,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return workload.Bursts{Rate: rate, Size: 128, Shared: 40_000, Own: 2000, BlockTokens: s.blockTokens, Seed: seed}.Arrivals()
		},
	},
	"trace": {
		Rate: 0.014, Engines: 8, KVTokens: 1_500_000, Limit: 6 * time.Second, Warmup: 2 * time.Hour, Duration: 4 * time.Hour,
		replay: true,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return s.trace.Replay(s.replayAt(rate, seed))
		},
	},
	"mooncake": {
		Rate: 4, Engines: 4, KVTokens: 600_000, Limit: 5 * time.Second, Warmup: 5 * time.Minute, Duration: 30 * time.Minute,
		replay: true,
		arrivals: func(s *settings, rate float64, seed uint64) workload.Arrivals {
			return s.trace.Replay(s.replayAt(rate, seed))
		},
	},
}

func (s *settings) replayAt(rate float64, seed uint64) workload.Replay {
	return workload.Replay{
		Rate: rate, BlockTokens: s.blockTokens, Seed: seed, Within: s.within(), MaxThink: s.maxThink,
	}
}
