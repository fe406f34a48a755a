// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/caddy-llm/loadaware/bench/lab/sim"

// sweep runs every rule at every rate.
func sweep(s *settings, p *progress) Report {
	rates := s.rates
	if len(rates) == 0 {
		rates = []float64{s.Rate}
	}
	all := make([][][]sim.Result, len(s.rules))
	for i := range all {
		all[i] = make([][]sim.Result, len(rates))
		for j := range all[i] {
			all[i][j] = make([]sim.Result, s.seeds)
		}
	}
	parallel(len(s.rules)*len(rates)*s.seeds, func(i int) {
		n := i % s.seeds
		at := i / s.seeds % len(rates)
		rule := i / s.seeds / len(rates)
		r := s.once(s.rules[rule], rates[at], s.seedOf(n))
		all[rule][at][n] = r
		p.ran("%-14s seed %d  rate %8.4g  p95 %7.2f s", s.rules[rule], s.seedOf(n), rates[at], r.TTFT.P95)
	})
	report := newReport(s)
	for i, name := range s.rules {
		r := RuleReport{Rule: name}
		for j, rate := range rates {
			r.Points = append(r.Points, Point{Rate: rate, Runs: s.seeds, Result: mean(all[i][j])})
		}
		report.Rules = append(report.Rules, r)
	}
	return report
}
