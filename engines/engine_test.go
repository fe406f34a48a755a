// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const valid = 3 * time.Second

// load is a report of requests and nothing else.
func load(running, waiting float64) Report {
	return Report{Running: Known(running), Waiting: Known(waiting)}
}

// seconds is a moment of a test.
func seconds(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

func TestOthers(t *testing.T) {
	tests := []struct {
		name   string
		report Report
		own    int
		after  time.Duration
		want   float64
	}{
		{name: "nothing is there", report: load(0, 0)},
		{name: "all are own", report: load(5, 2), own: 7},
		{name: "some are from elsewhere", report: load(5, 2), own: 3, want: 4},
		{name: "own ones that are over or not there yet", report: load(5, 2), own: 128},
		{name: "requests that only wait", report: load(0, 9), want: 9},
		{name: "two ranks of 2 and 9", report: load(2+9, 0), own: 1, want: 10},
		{name: "nobody says how many wait", report: Report{Running: Known(5)}, own: 2, want: 3},
		{name: "nobody says how many run", report: Report{Waiting: Known(5)}, own: 2},
		{name: "nothing is known", report: Report{}, own: 2},
		{name: "just valid", report: load(5, 0), after: valid - 1, want: 5},
		{name: "too old", report: load(5, 0), after: valid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			if got := e.Others(start); got != 0 {
				t.Errorf("Others() without a report = %v, want 0", got)
			}
			e.Observe(test.report, test.own, start, valid)
			if got := e.Others(start.Add(test.after)); got != test.want {
				t.Errorf("Others() of %+v with %v own = %v, want %v", test.report, test.own, got, test.want)
			}
		})
	}
}

// What the page claims may be absurd. It must not end in an infinite cost,
// which can be compared with no other.
func TestOthersIsBounded(t *testing.T) {
	var e Engine
	e.Observe(load(math.MaxFloat64, math.MaxFloat64), 0, start, valid)
	if got := e.Others(start); got != mostOthers {
		t.Errorf("Others() of an absurd report = %v, want %v", got, mostOthers)
	}
}

// Gauges are believed while a token counter moves, and those of an engine that
// counts no tokens while they move themselves.
func TestFrozenGauges(t *testing.T) {
	counting := func(tokens float64) func(i int) Report {
		return func(i int) Report {
			r := load(5, 0)
			r.KVUsage, r.Generated = Known(1), Known(100+tokens*float64(i))
			return r
		}
	}
	tests := []struct {
		name   string
		report func(i int) Report
		frozen bool
	}{
		{"a counter moves", counting(1), false},
		{"no counter moves", counting(0), true},
		{"the gauges move beside a counter that does not", func(i int) Report {
			r := counting(0)(i)
			r.Waiting = Known(float64(i))
			return r
		}, true},
		{"one of several counters moves", func(i int) Report {
			r := counting(0)(i)
			r.Computed, r.PrefixQueries, r.PrefixHits = Known(7), Known(float64(i)), Known(0)
			return r
		}, false},
		{"no counter is known and the gauges move", func(i int) Report {
			r := load(5, 0)
			r.KVUsage = Known(0.95 + float64(i%2)/100)
			return r
		}, false},
		{"no counter is known and the gauges stand still", func(int) Report {
			r := load(5, 0)
			r.KVUsage = Known(1)
			return r
		}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			for i := range 20 {
				now := seconds(float64(i))
				e.Observe(test.report(i), 0, now, valid)
				want := i < 10 || !test.frozen
				if got := e.Others(now) > 0; got != want {
					t.Errorf("Others() after %v s is there: %v, want %v", i, got, want)
				}
				if got := e.Full(now); got != want {
					t.Errorf("Full() after %v s = %v, want %v", i, got, want)
				}
			}
			r := test.report(20)
			r.Generated = Known(10_000)
			e.Observe(r, 0, seconds(20), valid)
			if e.Others(seconds(20)) == 0 || !e.Full(seconds(20)) {
				t.Errorf("an engine that has put something out again is not believed")
			}
		})
	}
}

// Between two reports the time goes on: what was seen to move too long ago is
// not believed, however long the report is valid.
func TestFrozenWithinOneReport(t *testing.T) {
	var e Engine
	e.Observe(load(5, 0), 0, start, time.Hour)
	for after, want := range map[time.Duration]float64{frozenAfter - 1: 5, frozenAfter: 0} {
		if got := e.Others(start.Add(after)); got != want {
			t.Errorf("Others() after %v = %v, want %v", after, got, want)
		}
	}
}

func TestFull(t *testing.T) {
	unknown := Number{}
	type step struct {
		usage Number
		full  bool
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"from 95 % on", []step{{Known(0.949), false}, {Known(0.95), true}}},
		{"until under 90 %", []step{{Known(1), true}, {Known(0.949), true}, {Known(0.9), true}, {Known(0.899), false}, {Known(0.949), false}}},
		{"between from the first report on", []step{{Known(0.93), false}, {Known(0.95), true}}},
		{"again", []step{{Known(0.95), true}, {Known(0.5), false}, {Known(0.95), true}}},
		{"until nobody says", []step{{Known(1), true}, {unknown, false}, {Known(0.93), false}}},
		{"nobody says", []step{{unknown, false}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			for i, s := range test.steps {
				now := seconds(float64(i))
				e.Observe(Report{KVUsage: s.usage, Generated: Known(float64(i))}, 0, now, valid)
				if got := e.Full(now); got != s.full {
					t.Errorf("Full() after %v steps of %v = %v, want %v", i+1, test.steps, got, s.full)
				}
			}
		})
	}
}

// Every mark against an engine ends by itself when no report comes any more.
func TestMarksExpire(t *testing.T) {
	var e Engine
	r := load(5, 5)
	r.KVUsage, r.Asleep = Known(1), true
	e.Observe(r, 0, start, valid)
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {valid - 1, true}, {valid, false}, {time.Hour, false}} {
		now := start.Add(test.after)
		if got := [3]bool{e.Others(now) > 0, e.Full(now), e.Asleep(now)}; got != [3]bool{test.want, test.want, test.want} {
			t.Errorf("others, full, asleep after %v = %v, want all %v", test.after, got, test.want)
		}
	}
}

// An engine sleeps for as long as its reports say so: it counts no tokens then.
func TestAsleepIsNotFrozen(t *testing.T) {
	var e Engine
	for i := range 60 {
		e.Observe(Report{Asleep: true, Generated: Known(1)}, 0, seconds(float64(i)), valid)
	}
	if !e.Asleep(seconds(60)) {
		t.Errorf("Asleep() after a minute = false, want true")
	}
	e.Observe(Report{Generated: Known(1)}, 0, seconds(60), valid)
	if e.Asleep(seconds(60)) {
		t.Errorf("Asleep() of an engine that woke up = true, want false")
	}
}

func TestEmptied(t *testing.T) {
	counted := func(started, tokens float64) Report {
		return Report{
			Started:  Known(started),
			Computed: Known(tokens), Generated: Known(tokens), PrefixQueries: Known(tokens), PrefixHits: Known(tokens),
		}
	}
	asleep := Report{Asleep: true}
	var bare Report
	tests := []struct {
		name    string
		reports []Report
		want    []bool
	}{
		{"the first report", []Report{counted(1, 100)}, []bool{false}},
		{"counters grow", []Report{counted(1, 100), counted(1, 200)}, []bool{false, false}},
		{"counters stand still", []Report{counted(1, 100), counted(1, 100)}, []bool{false, false}},
		{"another start", []Report{counted(1, 100), counted(2, 200)}, []bool{false, true}},
		{"another start after pages that leave it out", []Report{counted(1, 100), {}, {}, counted(2, 200)}, []bool{false, false, false, true}},
		{"the same start after pages that leave it out", []Report{counted(1, 100), {}, {}, counted(1, 200)}, []bool{false, false, false, false}},
		{"prefilled tokens go backwards", []Report{{Computed: Known(9)}, {Computed: Known(8)}}, []bool{false, true}},
		{"tokens put out go backwards", []Report{{Generated: Known(9)}, {Generated: Known(8)}}, []bool{false, true}},
		{"tokens looked for go backwards", []Report{{PrefixQueries: Known(9)}, {PrefixQueries: Known(8)}}, []bool{false, true}},
		{"hits go backwards", []Report{{PrefixHits: Known(9)}, {PrefixHits: Known(0)}}, []bool{false, true}},
		{"one counter goes backwards and the others grow", []Report{
			{Computed: Known(9), Generated: Known(9)}, {Computed: Known(8), Generated: Known(99)},
		}, []bool{false, true}},
		{"counters are missing", []Report{counted(1, 100), {}}, []bool{false, false}},
		{"counters are there for the first time", []Report{{}, {Computed: Known(0)}}, []bool{false, false}},
		{"gauges go down", []Report{load(9, 9), load(0, 0)}, []bool{false, false}},
		{"falls asleep", []Report{bare, asleep, asleep, asleep}, []bool{false, true, false, false}},
		{"asleep from the first report on", []Report{asleep, asleep}, []bool{true, false}},
		{"wakes up and falls asleep", []Report{asleep, bare, asleep}, []bool{true, false, true}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			for i, r := range test.reports {
				if got := e.Observe(r, 0, seconds(float64(i)), valid); got != test.want[i] {
					t.Errorf("Observe() of report %v = %v, want %v", i, got, test.want[i])
				}
			}
		})
	}
}

func TestEngineKVTokens(t *testing.T) {
	sized := func(tokens float64) Report { return Report{KVTokens: Known(tokens)} }
	tests := []struct {
		name    string
		reports []Report
		want    int
	}{
		{"no report", nil, 0},
		{"nobody says", []Report{{}}, 0},
		{"says so", []Report{sized(600_000)}, 600_000},
		{"leaves it out once", []Report{sized(600_000), {}}, 600_000},
		{"another size", []Report{sized(600_000), sized(300_000)}, 300_000},
		// the labels it comes from are multiplied, and no int holds the product
		{"an absurd size", []Report{sized(8e37)}, math.MaxInt32},
		{"the most a number holds", []Report{sized(math.MaxFloat64)}, math.MaxInt32},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var e Engine
			for i, r := range test.reports {
				e.Observe(r, 0, seconds(float64(i)), valid)
			}
			if got := e.KVTokens(); got != test.want {
				t.Errorf("KVTokens() = %v, want %v", got, test.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var e Engine
	if r, taken := e.Report(); !taken.IsZero() || r.Running.Known {
		t.Errorf("Report() before the first = %+v at %v, want nothing", r, taken)
	}
	e.Observe(load(5, 2), 0, start, valid)
	if r, taken := e.Report(); !taken.Equal(start) || r.Running != Known(5) || r.Waiting != Known(2) {
		t.Errorf("Report() = %+v at %v, want that of the start", r, taken)
	}
}
