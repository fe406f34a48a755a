// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/caddy-llm/loadaware/bench/lab/sim"
)

// step is the ratio of neighbouring rates in a search for the capacity.
const step = 1.03

// farthest bounds the search to rates within a factor of 370 of the workload's.
const farthest = 200

// fewest is how many requests a run must measure for its quantiles to say
// anything. A rule that misses the limit at every rate with that many has no
// capacity.
const fewest = 100

// search looks for the capacity of one rule.
type search struct {
	*settings
	rule     string
	progress *progress
	probes   map[int][]sim.Result // by exponent of step
}

// findCapacities returns the capacity of every rule.
func findCapacities(s *settings, p *progress) Report {
	report := newReport(s)
	report.Rules = make([]RuleReport, len(s.rules))
	parallel(len(s.rules), func(i int) {
		f := &search{settings: s, rule: s.rules[i], progress: p, probes: make(map[int][]sim.Result)}
		report.Rules[i] = f.report()
	})
	return report
}

// report finds the capacity with each seed. The search with one seed begins
// where the one before has ended.
func (f *search) report() RuleReport {
	c := Capacity{BySeed: make([]float64, f.seeds)}
	around, width := 0, 8
	for n := range c.BySeed {
		c.BySeed[n], around = f.find(f.seedOf(n), around, width)
		width = 2
	}
	c.Least, c.Most = slices.Min(c.BySeed), slices.Max(c.BySeed)
	for _, rate := range c.BySeed {
		c.Mean += rate / float64(f.seeds)
	}
	report := RuleReport{Rule: f.rule, Capacity: &c}
	for _, k := range slices.SortedFunc(maps.Keys(f.probes), cmp.Compare[int]) {
		report.Points = append(report.Points, Point{Rate: f.rateAt(k), Runs: len(f.probes[k]), Result: mean(f.probes[k])})
	}
	return report
}

func (f *search) rateAt(k int) float64 { return f.Rate * math.Pow(step, float64(k)) }

// find returns the capacity with one seed, and the exponent of the highest rate
// that keeps the limit. It goes away from around in strides that double until
// it has a rate on either side of the capacity, and halves what is between
// them. Between the last two rates it interpolates.
func (f *search) find(seed uint64, around, width int) (capacity float64, best int) {
	under, over := math.MinInt, math.MaxInt
	few := false // whether the run at under says nothing
	p95 := make(map[int]float64)
	for k := around; ; {
		r := f.probe(k, seed)
		p95[k] = r.TTFT.P95
		if f.under(r) {
			// the highest rate under the limit is the last one found
			under, few = k, r.Requests < fewest
		} else {
			over = min(over, k)
			if r.Overloaded {
				p95[k] = math.Inf(1)
			}
		}
		switch {
		case under == math.MinInt && over <= -farthest:
			return 0, over
		case over == math.MaxInt && under >= farthest:
			return f.rateAt(under), under
		case under == math.MinInt:
			k, width = over-width, 2*width
		case over == math.MaxInt:
			k, width = under+width, 2*width
		case over-under <= 1:
			if few {
				return 0, under
			}
			return f.between(under, p95[under], p95[over]), under
		default:
			k = under + (over-under)/2
		}
	}
}

// between is where the line from one TTFT to the next crosses the limit.
func (f *search) between(k int, below, above float64) float64 {
	share := (f.Limit.Seconds() - below) / (above - below)
	return f.Rate * math.Pow(step, float64(k)+max(min(share, 1), 0))
}

func (f *search) probe(k int, seed uint64) sim.Result {
	r := f.once(f.rule, f.rateAt(k), seed)
	f.probes[k] = append(f.probes[k], r)
	verdict := "under"
	if !f.under(r) {
		verdict = "over"
	}
	f.progress.ran("%-14s seed %d  rate %8.4g  p95 %7.2f s  %s", f.rule, seed, f.rateAt(k), r.TTFT.P95, verdict)
	return r
}
