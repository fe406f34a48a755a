// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// measures is what the agents of one run saw.
type measures struct {
	mu       sync.Mutex
	first    []time.Duration
	answered int
	failed   int
	lastErr  error
	lateness time.Duration
}

// add notes a request: if it counts, how long its first event took.
func (m *measures) add(counts bool, first time.Duration, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil:
		m.failed++
		m.lastErr = err
	default:
		m.answered++
		if counts {
			m.first = append(m.first, first)
		}
	}
}

// woke notes how late a timer was, which tells how busy the machine is.
func (m *measures) woke(late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lateness = max(m.lateness, late)
}

// drain reads a response to its end.
func drain(res *http.Response, buf []byte) error {
	for {
		if _, err := res.Body.Read(buf); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading the answer: %w", err)
		}
	}
}

// result is a row of the table. Times are in seconds of the servers' clock.
type result struct {
	Policy   string  `json:"policy"`
	Caddys   int     `json:"caddys"`
	Rate     float64 `json:"rate"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`

	P50 float64 `json:"ttft_p50"`
	P90 float64 `json:"ttft_p90"`
	P95 float64 `json:"ttft_p95"`
	P99 float64 `json:"ttft_p99"`

	// HitRate is the share of prompt tokens that the servers found cached, and
	// Spread the most prefill tokens that a server computed over their mean.
	HitRate float64 `json:"hit_rate"`
	Spread  float64 `json:"spread"`

	// RedisCommands is how many commands Redis has processed for each request.
	RedisCommands float64 `json:"redis_commands,omitempty"`

	// Late is how late the latest timer was.
	Late float64 `json:"late"`
}

func (m *measures) result() result {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.first)
	at := func(q float64) float64 {
		if len(m.first) == 0 {
			return 0
		}
		return m.first[min(int(q*float64(len(m.first))), len(m.first)-1)].Seconds()
	}
	return result{
		Requests: len(m.first), Failed: m.failed,
		P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99),
		Late: m.lateness.Seconds(),
	}
}

func printTable(out io.Writer, s settings, results []result) error {
	fmt.Fprintf(out, "\n%d servers, %d KV tokens each, seed %d, speed %v, %v measured after %v\n\n",
		s.engines, s.kvTokens, s.seed, s.speed, s.measure, s.warmUp)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "policy\tCaddys\tsessions/s\trequests\tfailed\tTTFT p50\tp90\tp95\tp99\thit rate\tspread\tRedis commands\tlate\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%d\t%v\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f %%\t%.2f\t%.2f\t%.2f\t\n",
			r.Policy, r.Caddys, r.Rate, r.Requests, r.Failed, r.P50, r.P90, r.P95, r.P99, 100*r.HitRate, r.Spread, r.RedisCommands, r.Late)
	}
	return table.Flush()
}
