// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"testing"
	"time"
)

// feed adds n samples of rate tokens per second, one request at a time, and
// returns when the last was done.
func (m *Meter) feed(n int, rate float64, now time.Time) time.Time {
	const tokens = 16_384
	for range n {
		m.Begin(1, now)
		now = now.Add(time.Duration(tokens / rate * float64(time.Second)))
		m.Done(tokens, 0, now)
		now = now.Add(time.Second)
	}
	return now
}

func wantRate(t *testing.T, m *Meter, rate, safe float64) {
	t.Helper()
	for _, r := range []struct {
		name      string
		got, want float64
	}{{"Rate", m.Rate(), rate}, {"SafeRate", m.SafeRate(), safe}} {
		if math.IsNaN(r.got) || math.Abs(r.got-r.want) > 1e-6*r.want {
			t.Errorf("%s() = %v, want %v", r.name, r.got, r.want)
		}
	}
}

func TestMeterNeedsSamples(t *testing.T) {
	var m Meter
	wantRate(t, &m, 0, 0)
	now := m.feed(leastSamples-1, 8000, start)
	wantRate(t, &m, 0, 0)
	m.feed(1, 8000, now)
	wantRate(t, &m, 8000, 8000)
}

// Three times slower is a third, whatever else the requests do.
func TestMeterTellsEnginesApart(t *testing.T) {
	for _, rate := range []float64{24_000, 8000} {
		var m Meter
		m.feed(leastSamples, rate, start)
		wantRate(t, &m, rate, rate)
	}
}

func TestMeterQuartiles(t *testing.T) {
	tests := []struct {
		name       string
		feed       func(m *Meter, now time.Time)
		rate, safe float64
	}{
		{"a quarter is slow", func(m *Meter, now time.Time) {
			m.feed(48, 8000, m.feed(16, 1000, now))
		}, 8000, 8000},
		{"more than a quarter is slow", func(m *Meter, now time.Time) {
			m.feed(47, 8000, m.feed(17, 1000, now))
		}, 8000, 1000},
		{"three quarters are slow", func(m *Meter, now time.Time) {
			m.feed(17, 8000, m.feed(47, 1000, now))
		}, 8000, 1000},
		{"some are fast", func(m *Meter, now time.Time) {
			m.feed(16, 80_000, m.feed(48, 8000, now))
		}, 8000, 8000},
		{"only the last 64 count", func(m *Meter, now time.Time) {
			m.feed(64, 3000, m.feed(1000, 8000, now))
		}, 3000, 3000},
		{"the oldest of them goes first", func(m *Meter, now time.Time) {
			m.feed(48, 3000, m.feed(64, 8000, now))
		}, 3000, 3000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var m Meter
			test.feed(&m, start)
			wantRate(t, &m, test.rate, test.safe)
		})
	}
}

// event is something that a meter is told, at a second of the test.
type event struct {
	at      float64
	do      string
	tokens  int
	waiting int
}

func (m *Meter) play(events []event, from time.Time) {
	for _, e := range events {
		now := from.Add(time.Duration(e.at * float64(time.Second)))
		switch e.do {
		case "begin":
			m.Begin(e.waiting, now)
		case "done":
			m.Done(e.tokens, e.waiting, now)
		case "assume":
			m.Assume(e.tokens, e.waiting, now)
		case "spoil":
			m.Spoil(e.waiting, now)
		}
	}
}

// Each series of events happens over and over. What it measures is the rate of
// an engine, or nothing.
func TestMeterSamples(t *testing.T) {
	tests := []struct {
		name   string
		events []event
		want   []float64 // samples of one round
	}{
		{"one request", []event{
			{0, "begin", 0, 1}, {2, "done", 8000, 0},
		}, []float64{4000}},
		{"one after the other, idle or in decode between them", []event{
			{0, "begin", 0, 1}, {2, "done", 8000, 0}, {60, "begin", 0, 1}, {62, "done", 8000, 0},
		}, []float64{4000, 4000}},
		{"two that wait for each other", []event{
			{0, "begin", 0, 1}, {0, "begin", 0, 2}, {2, "done", 8000, 1}, {4, "done", 8000, 0},
		}, []float64{4000, 4000}},
		{"a short one", []event{
			{0, "begin", 0, 1}, {1, "done", sampleTokens - 1, 0},
		}, nil},
		{"just long enough", []event{
			{0, "begin", 0, 1}, {1, "done", sampleTokens, 0},
		}, []float64{sampleTokens}},
		{"short ones of one queue count together", []event{
			{0, "begin", 0, 1},
			{0, "begin", 0, 2},
			{0, "begin", 0, 3},
			{1, "done", 2000, 2},
			{2, "done", 2000, 1},
			{3, "done", 2000, 0},
		}, []float64{2000}},
		{"short ones of two queues do not", []event{
			{0, "begin", 0, 1}, {1, "done", 4000, 0}, {1, "begin", 0, 1}, {2, "done", 4000, 0},
		}, nil},
		{"in no time", []event{{0, "begin", 0, 1}, {0, "done", 8000, 0}}, nil},
		{"before it was sent", []event{{1, "begin", 0, 1}, {0, "done", 8000, 0}}, nil},
		{"outputs of one step are one sample", []event{
			{0, "begin", 0, 1},
			{0, "begin", 0, 2},
			{0, "begin", 0, 3},
			{0, "begin", 0, 4},
			{2, "done", 8000, 3},
			{2.001, "done", 8000, 2},
			{6, "done", 8000, 1},
			{6.02, "done", 8000, 0},
		}, []float64{4000, 4000}},
		{"outputs of one step at the very same time", []event{
			{0, "begin", 0, 1},
			{0, "begin", 0, 2},
			{0, "begin", 0, 3},
			{2, "done", 8000, 2},
			{2, "done", 8000, 1},
			{6, "done", 8000, 0},
		}, []float64{4000, 4000}},
		{"spoiled", []event{
			{0, "begin", 0, 1}, {1, "spoil", 0, 0}, {2, "done", 8000, 0},
		}, nil},
		{"spoiled while another waits, which may be half done", []event{
			{0, "begin", 0, 1}, {0, "begin", 0, 2}, {9, "spoil", 0, 1}, {10, "done", 40_000, 0},
		}, nil},
		{"spoiled, then others", []event{
			{0, "begin", 0, 1},
			{0, "begin", 0, 2},
			{0, "begin", 0, 3},
			{9, "spoil", 0, 2},
			{10, "done", 40_000, 1},
			{12, "done", 8000, 0},
		}, []float64{4000}},
		{"spoiled, then a short one and others", []event{
			{0, "begin", 0, 1},
			{0, "begin", 0, 2},
			{0, "begin", 0, 3},
			{9, "spoil", 0, 2},
			{10, "done", 4, 1},
			{12, "done", 8000, 0},
		}, []float64{4000}},
		{"spoiled with nothing left, then another", []event{
			{0, "begin", 0, 1}, {1, "spoil", 0, 0}, {5, "begin", 0, 1}, {7, "done", 8000, 0},
		}, []float64{4000}},
		{"assumed ones count with the next that is seen", []event{
			{0, "begin", 0, 1}, {0, "begin", 0, 2}, {1, "assume", 8000, 1}, {4, "done", 8000, 0},
		}, []float64{4000}},
		{"assumed with nothing to see", []event{
			{0, "begin", 0, 1}, {60, "assume", 8000, 0},
		}, nil},
		{"nothing was assumed", []event{
			{0, "begin", 0, 1}, {1, "assume", 0, 1}, {2, "done", 8000, 0},
		}, []float64{4000}},
		{"assumed before anything was sent", []event{
			{0, "assume", 90_000, 0}, {1, "begin", 0, 1}, {3, "done", 8000, 0},
		}, []float64{4000}},
		{"done, of which nobody saw the beginning", []event{{1, "done", 8000, 0}}, nil},
		{"others wait of which nobody saw the beginning", []event{
			{0, "begin", 0, 3}, {2, "done", 8000, 0},
		}, []float64{4000}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			const rounds = 16
			var m Meter
			for i := range rounds {
				m.play(test.events, seconds(float64(1000*i)))
			}
			if m.count != rounds*len(test.want) {
				t.Fatalf("%v samples, want %v for each of %v rounds", m.count, len(test.want), rounds)
			}
			for i, want := range test.want {
				if got := m.samples[i]; math.Abs(got-want) > 0.02*want {
					t.Errorf("sample %v = %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestMeterAllocatesNothing(t *testing.T) {
	var m Meter
	now := start
	if n := testing.AllocsPerRun(100, func() { now = m.feed(1, 8000, now) }); n != 0 {
		t.Errorf("a sample allocates %v times, want never", n)
	}
}
