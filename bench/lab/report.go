// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/caddy-llm/loadaware/bench/lab/sim"
)

// Report is what the laboratory has found; its JSON form is what -json writes.
type Report struct {
	Workload string       `json:"workload"`
	Engines  int          `json:"engines"`
	KVTokens int          `json:"kv_tokens"`
	Limit    float64      `json:"limit_seconds"`
	Warmup   float64      `json:"warmup_seconds"`
	Duration float64      `json:"duration_seconds"`
	Seeds    []uint64     `json:"seeds"`
	Sigma    float64      `json:"sigma"`
	Block    int          `json:"block_tokens"`
	Index    int          `json:"index_tokens"`
	Hold     int          `json:"hold_tokens,omitempty"`
	Overtake float64      `json:"overtake,omitempty"`
	Scene    sim.Scene    `json:"scene,omitempty"`
	Routers  int          `json:"routers"`
	Shared   string       `json:"shared,omitempty"`
	Weights  Weights      `json:"load_aware"`
	Rules    []RuleReport `json:"rules"`
}

// Weights are the options that the shipped rule ran with.
type Weights struct {
	RequestCost float64 `json:"request_cost"`
	Congestion  float64 `json:"congestion"`
	Eviction    float64 `json:"eviction"`
	Stickiness  float64 `json:"stickiness"`
	PrefixIndex bool    `json:"prefix_index"`
}

// RuleReport is what was found about one rule.
type RuleReport struct {
	Rule     string    `json:"rule"`
	Capacity *Capacity `json:"capacity,omitempty"`
	Points   []Point   `json:"points"`
}

// Capacity is the highest rate that keeps the limit, in sessions or requests
// per second. It is 0 where no rate does.
type Capacity struct {
	Mean   float64   `json:"mean"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	BySeed []float64 `json:"by_seed"`
}

// Point is the mean of the runs at one rate.
type Point struct {
	Rate   float64    `json:"rate"`
	Runs   int        `json:"runs"`
	Result sim.Result `json:"result"`
}

func newReport(s *settings) Report {
	r := Report{
		Workload: s.Workload,
		Engines:  s.Engines,
		KVTokens: s.KVTokens,
		Limit:    s.Limit.Seconds(),
		Warmup:   s.Warmup.Seconds(),
		Duration: s.Duration.Seconds(),
		Sigma:    s.sigma,
		Block:    s.blockTokens,
		Index:    s.options.KVTokens,
		Hold:     s.hold,
		Overtake: s.overtake,
		Scene:    s.scene,
		Routers:  s.routers,
		Weights: Weights{
			RequestCost: s.options.RequestCost,
			Congestion:  s.options.Congestion,
			Eviction:    s.options.Eviction,
			Stickiness:  s.options.Stickiness,
			PrefixIndex: s.options.PrefixIndex,
		},
	}
	if s.routers > 1 {
		r.Shared = s.shared.String()
	}
	for n := range s.seeds {
		r.Seeds = append(r.Seeds, s.seedOf(n))
	}
	return r
}

func (r *Report) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// print writes the tables.
func (r *Report) print(out io.Writer) error {
	fmt.Fprintf(out, "%s: %d engines of %d KV tokens, %d seeds, %.0f s measured after %.0f s",
		r.Workload, r.Engines, r.KVTokens, len(r.Seeds), r.Duration, r.Warmup)
	if r.Hold > 0 {
		fmt.Fprintf(out, ", holding what is over %d tokens", r.Hold)
	}
	if r.Routers > 1 {
		fmt.Fprintf(out, ", %d routers that share %s", r.Routers, r.Shared)
	}
	if r.Scene != sim.SceneNone {
		fmt.Fprintf(out, ", scene %s", r.Scene)
	}
	fmt.Fprintf(out, "\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(r.Rules) > 0 && r.Rules[0].Capacity != nil {
		r.printCapacities(w)
	} else {
		r.printPoints(w)
	}
	return w.Flush()
}

// printCapacities writes a line for each rule, with what was measured at the
// highest rate of which the mean over the seeds tried there kept the limit.
func (r *Report) printCapacities(w io.Writer) {
	fmt.Fprintf(w, "rule\tcapacity/s\tleast\tmost\tat rate\tTTFT p50\tp95\tp99\tmax\tslow tok/s\thit\tspread\tmoves\t\n")
	for _, rule := range r.Rules {
		c := rule.Capacity
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.4g\t", rule.Rule, c.Mean, c.Least, c.Most)
		if p := rule.best(r.Limit); p != nil {
			m := &p.Result
			fmt.Fprintf(w, "%.4g\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f%%\t%.2f\t%.1f%%\t\n", p.Rate,
				m.TTFT.P50, m.TTFT.P95, m.TTFT.P99, m.TTFT.Max, m.SlowOutput, 100*m.HitRate, m.Spread, 100*m.Moves)
		} else {
			fmt.Fprintf(w, "-\t-\t-\t-\t-\t-\t-\t-\t-\t\n")
		}
	}
}

// best is the point of the highest rate that kept the limit.
func (r *RuleReport) best(limit float64) *Point {
	for _, v := range slices.Backward(r.Points) {
		if p := &v; p.Result.Requests >= fewest*p.Runs && !p.Result.Overloaded && p.Result.TTFT.P95 <= limit {
			return p
		}
	}
	return nil
}

// printPoints writes a line for each rule and rate.
func (r *Report) printPoints(w io.Writer) {
	fmt.Fprintf(w, "rule\trate/s\trequests\tlost\tTTFT p50\tp90\tp95\tp99\tmax\tslow tok/s\thit\tspread\tmoves\t")
	if r.Scene != sim.SceneNone {
		fmt.Fprintf(w, "p95 before\t1st minute\t2nd\tlater\tcomputed/s before\t1st minute\t2nd\tlater\t")
	}
	fmt.Fprintln(w)
	for _, rule := range r.Rules {
		for _, p := range rule.Points {
			m := &p.Result
			fmt.Fprintf(w, "%s\t%.4g\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%.1f%%\t%.2f\t%.1f%%\t", rule.Rule, p.Rate, m.Requests, m.Lost,
				m.TTFT.P50, m.TTFT.P90, m.TTFT.P95, m.TTFT.P99, m.TTFT.Max, m.SlowOutput, 100*m.HitRate, m.Spread, 100*m.Moves)
			if a := m.Scene; a != nil {
				fmt.Fprintf(w, "%.2f\t%.2f\t%.2f\t%.2f\t", a.Before, a.First, a.Second, a.Later)
			}
			if a := m.Work; a != nil {
				fmt.Fprintf(w, "%.0f\t%.0f\t%.0f\t%.0f\t", a.Before, a.First, a.Second, a.Later)
			}
			fmt.Fprintln(w)
		}
	}
}
