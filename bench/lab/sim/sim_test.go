// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

const blockTokens = fleet.BlockTokens

func fleetOf(engines int) Config {
	return Config{
		Engines:  engines,
		Engine:   vllmsim.Config{BlockTokens: blockTokens, KVTokens: 600_000},
		Warmup:   time.Minute,
		Duration: 2 * time.Minute,
		Sigma:    0.1,
		Retries:  2,
	}
}

func maker(name string, c Config) func() rules.Rule {
	options := fleet.DefaultOptions()
	options.KVTokens = 600_000
	random := rand.New(rand.NewPCG(1, 2))
	return func() rules.Rule {
		return rules.New(name, rules.Config{
			Engines: c.Engines, IndexTokens: options.KVTokens, PrefillRate: 12_000, Options: options, Random: random,
		})
	}
}

func agents(rate float64) workload.Arrivals {
	return workload.Agents{Rate: rate, BlockTokens: blockTokens, Seed: 1, Within: 40 * time.Second}.Arrivals()
}

func TestRunIsDeterministic(t *testing.T) {
	for _, name := range rules.Names() {
		t.Run(name, func(t *testing.T) {
			c := fleetOf(3)
			first := Run(c, agents(0.03), maker(name, c))
			again := Run(c, agents(0.03), maker(name, c))
			if !reflect.DeepEqual(first, again) {
				t.Errorf("Run() = %+v and then %+v", first, again)
			}
			if first.Requests < 50 || first.HitRate == 0 {
				t.Errorf("Run() = %+v, want at least 50 requests and some hits", first)
			}
		})
	}
}

func TestEveryRuleIsEqualOnOneEngine(t *testing.T) {
	c := fleetOf(1)
	var first Result
	for i, name := range rules.Names() {
		got := Run(c, agents(0.02), maker(name, c))
		if i == 0 {
			first = got
		}
		if !reflect.DeepEqual(got, first) {
			t.Errorf("%s: Run() = %+v, want %+v as for %s", name, got, first, rules.Names()[0])
		}
	}
}

// Where nothing is shared, the best rule is to go where the least work is.
func TestUnsharedPromptsAreServedAsByTheAllKnowing(t *testing.T) {
	c := fleetOf(4)
	c.Duration = 10 * time.Minute
	var p95 [2]float64
	for i, name := range []string{rules.LoadAware, "all-knowing"} {
		p95[i] = Run(c, workload.Unshared{Rate: 4.2, BlockTokens: blockTokens, Seed: 1}.Arrivals(), maker(name, c)).TTFT.P95
	}
	if p95[0] > 1.1*p95[1] {
		t.Errorf("TTFT p95 is %.2f s, want at most 10 %% over the %.2f s of the all-knowing rule", p95[0], p95[1])
	}
}

// counting notes where a rule places requests.
type counting struct {
	rules.Rule
	counts []int
}

func (c *counting) Place(r *rules.Request, now time.Duration, v rules.View) int {
	at := c.Rule.Place(r, now, v)
	c.counts[at]++
	return at
}

func TestBurstSpreadsEvenly(t *testing.T) {
	c := fleetOf(3)
	c.Engine.KVTokens = 5_000_000
	tests := []struct {
		name        string
		shared, own int
		low, high   int
	}{
		{"equal sizes", 0, 32_000, 42, 43},
		{"over one shared document", 40_000, 2000, 38, 50},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := 0
			all := workload.Bursts{
				Rate: 1.0 / 60, Size: 128, Shared: test.shared, Own: test.own, BlockTokens: blockTokens,
			}.Arrivals()
			one := func() (time.Duration, *workload.Script, bool) {
				at, s, _ := all()
				n++
				return at, s, at < 61*time.Second
			}
			rule := &counting{Rule: maker(rules.LoadAware, c)(), counts: make([]int, 3)}
			Run(c, one, func() rules.Rule { return rule })
			sum := 0
			for _, count := range rule.counts {
				sum += count
				if count < test.low || count > test.high+1 {
					t.Errorf("requests went %v, want between %d and %d each", rule.counts, test.low, test.high)
				}
			}
			if sum < 128 {
				t.Errorf("%d requests were placed, want 128 at least", sum)
			}
		})
	}
}
