// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"time"
)

// measures are taken of the requests that are sent within the measured time.
type measures struct {
	from, to time.Duration
	half     time.Duration // of the scene, 0 without one

	requests, lostRequests int
	prompt, cached         int
	turns, moves           int
	ttft                   []float64 // seconds
	speed                  []float64 // tokens per second of an answer
	minutes                [len(parts{})][]float64
	computed               []int64 // by engine, when measuring began
	overloaded             bool

	// work is what the engines have computed from the run's beginning to that
	// of each part, as far as the parts have begun
	work [len(parts{})]int64
}

// fewTokens is the length of an answer under which its speed says nothing.
const fewTokens = 16

func (m *measures) counts(sent time.Duration) bool { return m.from <= sent && sent < m.to }

func (m *measures) sent(now time.Duration) {
	if m.counts(now) {
		m.requests++
	}
}

func (m *measures) lost(a *attempt) {
	if m.counts(a.sent) {
		m.lostRequests++
	}
}

// shown notes the time to the first output. A request that was lost before has
// none; it is counted as lost.
func (m *measures) shown(a *attempt, now time.Duration) {
	if !m.counts(a.sent) {
		return
	}
	m.prompt += a.request.PromptTokens
	m.cached += a.request.CachedTokens
	m.wait(a.sent, now-a.sent)
}

func (m *measures) wait(sent, ttft time.Duration) {
	m.ttft = append(m.ttft, ttft.Seconds())
	if m.half == 0 {
		return
	}
	if part := m.part(sent - m.half); part >= 0 {
		m.minutes[part] = append(m.minutes[part], ttft.Seconds())
	}
}

// part tells the minute before the scene, the first and the second minute
// after, and the rest.
func (m *measures) part(since time.Duration) int {
	switch {
	case since < -time.Minute:
		return -1
	case since < 0:
		return 0
	case since < time.Minute:
		return 1
	case since < 2*time.Minute:
		return 2
	default:
		return 3
	}
}

func (m *measures) turn(now time.Duration, moved bool) {
	if !m.counts(now) {
		return
	}
	m.turns++
	if moved {
		m.moves++
	}
}

func (m *measures) answered(a *attempt) {
	q := &a.request
	if m.counts(a.sent) && q.Generated >= fewTokens && q.Done > q.FirstOutput {
		m.speed = append(m.speed, float64(q.Generated-1)/(q.Done-q.FirstOutput).Seconds())
	}
}

// startMeasuring notes what the engines have computed in the warm-up.
func (r *run) startMeasuring() {
	for _, e := range r.engines {
		r.measures.computed = append(r.measures.computed, e.Stats().PrefillTokens)
	}
}

// parts are a value for the minute before a scene, the first and the second
// minute after it, and the rest.
type parts [4]float64

// stageMeasures prepares to measure around a scene's moment.
func (r *run) stageMeasures(half time.Duration) {
	r.measures.half = half
	for part := range r.measures.work {
		r.at(half+time.Duration(part-1)*time.Minute, func() { r.measures.work[part] = r.work() })
	}
}

// work is how many prompt tokens the engines have computed.
func (r *run) work() (tokens int64) {
	for _, e := range r.engines {
		tokens += e.Stats().PrefillTokens
	}
	return tokens
}

// quantile returns the p-quantile of sorted values, 0 if there are none.
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

func sortedCopy(values []float64) []float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values
}
