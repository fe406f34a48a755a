// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver"
)

// results are everything that was measured. Of two entries the first is that of
// the policy that is compared with.
type results struct {
	Policies [2]string    `json:"policies"`
	Requests []comparison `json:"requests,omitempty"`

	// RedisCommands is how many commands Redis has processed for each request of
	// the second side, 0 where that does not share.
	RedisCommands float64 `json:"redis_commands,omitempty"`

	Streams  int          `json:"streams,omitempty"`
	Transfer int64        `json:"transfer,omitempty"`
	Memory   *[2]memory   `json:"memory,omitempty"`
	Page     []pageFigure `json:"page,omitempty"`
}

// countCommands asks a Redis, nil for none, how many commands the requests so far
// have cost.
func (r *results) countCommands(redis *redisserver.Server) error {
	if redis == nil {
		return nil
	}
	commands, err := redis.Commands()
	if err != nil {
		return err
	}
	requests := 0
	for _, c := range r.Requests {
		requests += c.Sides[1].Requests
	}
	r.RedisCommands = float64(commands) / float64(max(requests, 1))
	return nil
}

// comparison is both sides at one kind of request.
type comparison struct {
	Kind    string    `json:"kind"`
	Clients int       `json:"clients"`
	Sides   [2]figure `json:"sides"`

	// the rest are medians over the rounds of the second side by the first, and
	// minus it where it says more
	RateRatio float64 `json:"rate_ratio"`
	CPURatio  float64 `json:"cpu_ratio"`
	P50More   float64 `json:"p50_more"`
	P99More   float64 `json:"p99_more"`
	CPUMore   float64 `json:"cpu_more"`
}

// figure is one side at one kind of request: medians over its turns, but for
// the latencies, which are over all of its requests. Times are in microseconds.
type figure struct {
	Requests  int     `json:"requests"`
	Rate      float64 `json:"rate"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
	CPU       float64 `json:"cpu"`
	Allocated float64 `json:"allocated"`
	Mallocs   float64 `json:"mallocs"`
}

func (t *turn) rate() float64 { return float64(len(t.times)) / t.elapsed.Seconds() }
func (t *turn) cpu() float64  { return micros(t.used.CPU) / float64(len(t.times)) }

func compare(k kind, turns [2][]turn) comparison {
	c := comparison{Kind: k.name, Clients: k.clients}
	for side := range turns {
		c.Sides[side] = figureOf(turns[side])
	}
	rounds := func(f func(a, b *turn) float64) float64 {
		var values []float64
		for i := range turns[0] {
			values = append(values, f(&turns[0][i], &turns[1][i]))
		}
		return median(values)
	}
	c.RateRatio = rounds(func(a, b *turn) float64 { return b.rate() / a.rate() })
	c.CPURatio = rounds(func(a, b *turn) float64 { return b.cpu() / a.cpu() })
	c.CPUMore = rounds(func(a, b *turn) float64 { return b.cpu() - a.cpu() })
	c.P50More = rounds(func(a, b *turn) float64 { return quantile(b.times, 0.5) - quantile(a.times, 0.5) })
	c.P99More = rounds(func(a, b *turn) float64 { return quantile(b.times, 0.99) - quantile(a.times, 0.99) })
	return c
}

func figureOf(turns []turn) figure {
	var times []time.Duration
	var rates, cpu, allocated, mallocs []float64
	for i := range turns {
		t := &turns[i]
		n := float64(len(t.times))
		times = append(times, t.times...)
		rates = append(rates, t.rate())
		cpu = append(cpu, t.cpu())
		allocated = append(allocated, float64(t.used.Allocated)/n)
		mallocs = append(mallocs, float64(t.used.Mallocs)/n)
	}
	slices.Sort(times)
	return figure{
		Requests: len(times), Rate: median(rates),
		P50: quantile(times, 0.5), P99: quantile(times, 0.99),
		CPU: median(cpu), Allocated: median(allocated), Mallocs: median(mallocs),
	}
}

// summarize keeps the medians of the memory rounds.
func (r *results) summarize(s settings, rounds [2][]memory) {
	r.Streams, r.Transfer, r.Memory = s.streams, s.transfer, new([2]memory)
	for side, measured := range rounds {
		of := func(f func(m memory) float64) float64 {
			var values []float64
			for _, m := range measured {
				values = append(values, f(m))
			}
			return median(values)
		}
		r.Memory[side] = memory{
			StreamRSS:  of(func(m memory) float64 { return m.StreamRSS }),
			StreamHeap: of(func(m memory) float64 { return m.StreamHeap }),
			RSS:        of(func(m memory) float64 { return m.RSS }),
			Response:   of(func(m memory) float64 { return m.Response }),
			Upload:     of(func(m memory) float64 { return m.Upload }),
		}
	}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// quantile is a quantile of sorted times in microseconds.
func quantile(times []time.Duration, q float64) float64 {
	return micros(times[min(int(q*float64(len(times))), len(times)-1)])
}

// median sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
