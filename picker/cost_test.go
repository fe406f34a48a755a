// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// counter returns a random source that counts up, so that every upstream of a
// ledger begins with a place of its own.
func counter() func() uint64 {
	var n uint64
	return func() uint64 { n += 2; return n }
}

// state is what is on an upstream: requests in flight of which waiting hold
// prefill tokens together.
type state struct{ requests, waiting, prefill int }

func (s state) upstream(l *Ledger, name string) *Upstream {
	u := l.NewUpstream(name)
	for i := range s.requests {
		c := Claim{Prefills: i < s.waiting}
		if i == 0 {
			c.Tokens = s.prefill
		}
		l.Open(new(Reservation), u, c, start)
	}
	return u
}

func TestScore(t *testing.T) {
	weights := Weights{RequestCost: 4096, Congestion: 2, Eviction: 4}
	tests := []struct {
		name     string
		weights  Weights
		state    state
		uncached int
		age      time.Duration
		others   []state
		cold     int // what the request would add to each of the others
		want     float64
	}{
		{name: "idle and warm", weights: weights, age: NeverEvicts, want: 0},
		{name: "idle and cold", weights: weights, age: NeverEvicts, uncached: 1000, want: 1000},
		{name: "requests past their prefill", weights: weights, age: NeverEvicts, state: state{requests: 3}, uncached: 1000, want: 3*4096 + 1000},
		{name: "prefill without uncached tokens", weights: weights, age: NeverEvicts, state: state{1, 1, 5000}, want: 4096 + 5000},
		{name: "waiting without prefill tokens", weights: weights, age: NeverEvicts, state: state{1, 1, 0}, uncached: 10, others: []state{{1, 1, 0}}, want: 4096 + (1+2*1)*10},
		{name: "congestion is the mean", weights: weights, age: NeverEvicts, state: state{4, 4, 9000}, uncached: 100, others: []state{{2, 2, 0}}, want: 4*4096 + 9000 + (1+2*3)*100},
		{name: "congestion just under its bound", weights: weights, age: NeverEvicts, state: state{1, 1, 0}, uncached: 100, others: []state{{2, 2, 0}}, want: 4096 + (1+2*1.5)*100},
		{name: "congestion on its bound", weights: weights, age: NeverEvicts, state: state{1, 1, 0}, uncached: 100, others: []state{{3, 3, 0}}, want: 4096 + (1+2*2)*100},
		{name: "congestion just over its bound", weights: weights, age: NeverEvicts, state: state{1, 1, 0}, uncached: 100, others: []state{{4, 4, 0}}, want: 4096 + (1+2*2)*100},
		{name: "idle in a crowded fleet", weights: weights, age: NeverEvicts, uncached: 100, others: []state{{90, 90, 0}, {60, 60, 0}}, want: (1 + 2*1) * 100},
		{name: "idle candidates lower the mean", weights: weights, age: NeverEvicts, state: state{3, 3, 0}, uncached: 100, others: []state{{}, {}}, want: 3*4096 + (1+2*1)*100},
		{name: "running requests do not congest", weights: weights, age: NeverEvicts, uncached: 100, others: []state{{requests: 50}}, want: 100},
		{name: "eviction of a block in use", weights: weights, age: 0, uncached: 100, want: (1 + 4) * 100},
		{name: "eviction at 60 s", weights: weights, age: 60 * time.Second, uncached: 100, want: (1 + 2) * 100},
		{name: "eviction at 10 min", weights: weights, age: 10 * time.Minute, uncached: 110, want: 110 + 4*10},
		{name: "eviction of a block used later than now", weights: weights, age: -time.Hour, uncached: 100, want: (1 + 4) * 100},
		{name: "eviction without uncached tokens", weights: weights, age: 0, want: 0},
		{name: "eviction and congestion add up", weights: weights, age: 60 * time.Second, state: state{2, 2, 0}, uncached: 100, others: []state{{2, 2, 0}}, want: 2*4096 + (1+2*2+2)*100},
		{name: "what must be computed anyway is not avoidable", weights: weights, age: NeverEvicts, state: state{4, 4, 0}, uncached: 100, others: []state{{4, 4, 0}}, cold: 90, want: 4*4096 + 100 + 2*4*10},
		{name: "cold everywhere", weights: weights, age: NeverEvicts, state: state{4, 4, 0}, uncached: 100, others: []state{{9, 9, 0}}, cold: 100, want: 4*4096 + 100},
		{name: "zero weights", age: 0, state: state{3, 2, 500}, uncached: 100, others: []state{{9, 9, 9}}, want: 500 + 100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			candidates := []Candidate{{Upstream: test.state.upstream(l, "scored"), Uncached: test.uncached, Age: test.age}}
			for i, other := range test.others {
				candidates = append(candidates, Candidate{
					Upstream: other.upstream(l, fmt.Sprint(i)), Uncached: test.cold, Age: NeverEvicts,
				})
			}
			test.weights.Score(candidates, start)
			if got := candidates[0].Cost; math.Abs(got-test.want) > 1e-6 {
				t.Errorf("Score(%+v) = %v, want %v", test.state, got, test.want)
			}
		})
	}
}

// A request from elsewhere costs as much as one of our own, and what is computed
// twice as fast costs less by the root of two. What it evicts and whom it delays
// costs the same on every upstream.
func TestScoreByReports(t *testing.T) {
	weights := Weights{RequestCost: 4096, Congestion: 2, Eviction: 4}
	tests := []struct {
		name     string
		weights  Weights
		state    state
		uncached int
		age      time.Duration
		others   float64
		speed    float64
		want     float64
	}{
		{name: "others", weights: weights, age: NeverEvicts, others: 3, want: 3 * 4096},
		{name: "part of one", weights: weights, age: NeverEvicts, others: 0.5, want: 2048},
		{name: "others and own", weights: weights, age: NeverEvicts, state: state{2, 1, 500}, others: 3, uncached: 10, want: 5*4096 + 500 + 10},
		{name: "others do not congest", weights: weights, age: NeverEvicts, others: 90, uncached: 100, want: 90*4096 + 100},
		{name: "others where requests are free", age: NeverEvicts, others: 1e6, uncached: 100, want: 100},
		{name: "no speed", weights: weights, age: NeverEvicts, state: state{1, 1, 500}, uncached: 100, want: 4096 + 600},
		{name: "equal speed", weights: weights, age: NeverEvicts, state: state{1, 1, 500}, uncached: 100, speed: 1, want: 4096 + 600},
		{name: "four times as fast", weights: weights, age: NeverEvicts, state: state{1, 1, 500}, uncached: 100, speed: 4, want: 4096 + 300},
		{name: "a quarter as fast", weights: weights, age: NeverEvicts, state: state{1, 1, 500}, uncached: 100, speed: 0.25, want: 4096 + 1200},
		{name: "twice as fast", weights: weights, age: NeverEvicts, uncached: 1000, speed: 2, want: 1000 / math.Sqrt2},
		{name: "speed does not make requests cheaper", weights: weights, age: NeverEvicts, state: state{requests: 3}, others: 1, speed: 4, want: 4 * 4096},
		{name: "speed does not make room cheaper", weights: weights, age: 0, uncached: 100, speed: 4, want: 50 + 4*100},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			c := []Candidate{{
				Upstream: test.state.upstream(l, "a"),
				Uncached: test.uncached, Age: test.age, Others: test.others, Speed: test.speed,
			}}
			test.weights.Score(c, start)
			if got := c[0].Cost; math.Abs(got-test.want) > 1e-6 {
				t.Errorf("Score(%+v) = %v, want %v", c[0], got, test.want)
			}
		})
	}
}

func TestScoreAllocatesNothing(t *testing.T) {
	l := NewLedger(counter())
	candidates := randomCandidates(l, rand.New(rand.NewPCG(7, 8)))
	for i := range candidates {
		candidates[i].Others, candidates[i].Speed = 3, 2
	}
	w := DefaultWeights()
	if n := testing.AllocsPerRun(100, func() { w.Score(candidates, start); Pick(candidates, true) }); n != 0 {
		t.Errorf("Score() and Pick() allocate %v times, want never", n)
	}
}

func TestScoreNothing(*testing.T) {
	w := DefaultWeights()
	w.Score(nil, start)
}

func TestScoreCountsFailures(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	l.Failed(u, start)
	w := Weights{RequestCost: 1000}
	c := []Candidate{{Upstream: u, Age: NeverEvicts}}
	if w.Score(c, start); c[0].Cost != 1000 {
		t.Errorf("Score() after a failure = %v, want 1000", c[0].Cost)
	}
	if w.Score(c, start.Add(time.Minute)); c[0].Cost != 0 {
		t.Errorf("Score() long after a failure = %v, want 0", c[0].Cost)
	}
}

// randomCandidates returns 1 to 8 candidates in random states.
func randomCandidates(l *Ledger, r *rand.Rand) []Candidate {
	candidates := make([]Candidate, 1+r.IntN(8))
	for i := range candidates {
		s := state{requests: r.IntN(20), prefill: r.IntN(200_000)}
		s.waiting = r.IntN(s.requests + 1)
		age := NeverEvicts
		if r.IntN(2) == 0 {
			age = time.Duration(r.IntN(1200)) * time.Second
		}
		candidates[i] = Candidate{
			Upstream: s.upstream(l, fmt.Sprint(i)), Uncached: r.IntN(140_000), Age: age,
			Others: float64(r.IntN(4)), Speed: []float64{0, 0.25, 1, 4}[r.IntN(4)],
		}
	}
	return candidates
}

func costs(candidates []Candidate) []float64 {
	costs := make([]float64, len(candidates))
	for i, c := range candidates {
		costs[i] = c.Cost
	}
	return costs
}

func TestMoreNeverCostsLess(t *testing.T) {
	more := []struct {
		name string
		add  func(*Ledger, *Candidate, *rand.Rand)
	}{
		{"load", func(l *Ledger, c *Candidate, _ *rand.Rand) { l.Open(new(Reservation), c.Upstream, Claim{}, start) }},
		{"failures", func(l *Ledger, c *Candidate, _ *rand.Rand) { l.Failed(c.Upstream, start) }},
		{"prefill", func(l *Ledger, c *Candidate, r *rand.Rand) {
			l.Open(new(Reservation), c.Upstream, Claim{Tokens: r.IntN(9000), Prefills: true}, start)
		}},
		{"load from elsewhere", func(_ *Ledger, c *Candidate, r *rand.Rand) { c.Others += r.Float64() }},
		{"slowness", func(_ *Ledger, c *Candidate, _ *rand.Rand) { c.Speed = 0.2 }},
		{"recent blocks to evict", func(_ *Ledger, c *Candidate, _ *rand.Rand) { c.Age /= 2 }},
	}
	for _, test := range more {
		t.Run(test.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			w := DefaultWeights()
			for range 500 {
				l := NewLedger(r.Uint64)
				candidates := randomCandidates(l, r)
				w.Score(candidates, start)
				before := costs(candidates)
				at := r.IntN(len(candidates))
				test.add(l, &candidates[at], r)
				w.Score(candidates, start)
				for i, c := range candidates {
					if c.Cost < before[i] {
						t.Fatalf("Score() of %d = %v after more %s on %d, want at least %v", i, c.Cost, test.name, at, before[i])
					}
				}
			}
		})
	}
}

// More uncached tokens on one upstream make fewer tokens avoidable on the
// others, so it is the difference that never shrinks.
func TestMoreUncachedNeverGainsOnOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := DefaultWeights()
	for range 500 {
		candidates := randomCandidates(NewLedger(r.Uint64), r)
		w.Score(candidates, start)
		before := costs(candidates)
		at := r.IntN(len(candidates))
		candidates[at].Uncached += r.IntN(9000)
		w.Score(candidates, start)
		for i, after := range costs(candidates) {
			if candidates[at].Cost-after < before[at]-before[i]-1e-6 {
				t.Fatalf("Score() of %d = %v, of %d = %v after more uncached on %d, before %v", at, candidates[at].Cost, i, after, at, before)
			}
		}
	}
}

func TestPickIgnoresOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	w := DefaultWeights()
	for range 500 {
		candidates := randomCandidates(NewLedger(r.Uint64), r)
		w.Score(candidates, start)
		want := candidates[Pick(candidates, true)].Upstream
		r.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		w.Score(candidates, start)
		if got := candidates[Pick(candidates, true)].Upstream; got != want {
			t.Fatalf("Pick(%v) = %q, want %q as before the shuffle", costs(candidates), got.Name(), want.Name())
		}
	}
}

func TestPick(t *testing.T) {
	tests := []struct {
		name string
		// assigned lists the positions in the order they were last chosen
		assigned []int
		costs    []float64
		want     int
	}{
		{name: "none", want: -1},
		{name: "one", costs: []float64{7}, want: 0},
		{name: "lowest", costs: []float64{7, 3, 9}, want: 1},
		{name: "lowest though chosen last", costs: []float64{7, 3, 9}, assigned: []int{0, 2, 1}, want: 1},
		{name: "tie goes to the least recently assigned", costs: []float64{5, 5, 5}, assigned: []int{2, 0, 1}, want: 2},
		{name: "never chosen goes before chosen", costs: []float64{5, 5, 5}, assigned: []int{2, 0}, want: 1},
		{name: "within one token is a tie", costs: []float64{5, 6, 5.5}, assigned: []int{1, 2, 0}, want: 1},
		{name: "over one token is none", costs: []float64{5, 6.001, 5.5}, assigned: []int{1, 2, 0}, want: 2},
		{name: "ties do not chain", costs: []float64{5, 5.9, 6.8}, assigned: []int{2, 1, 0}, want: 1},
		{name: "infinite", costs: []float64{math.Inf(1), math.Inf(1)}, assigned: []int{0, 1}, want: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			var candidates []Candidate
			for i, cost := range test.costs {
				candidates = append(candidates, Candidate{Upstream: l.NewUpstream(fmt.Sprint(i)), Cost: cost})
			}
			for _, at := range test.assigned {
				var r Reservation
				l.Open(&r, candidates[at].Upstream, Claim{Prefills: true}, start)
				l.Close(&r)
			}
			if got := Pick(candidates, true); got != test.want {
				t.Errorf("Pick(%v) = %v, want %v", test.costs, got, test.want)
			}
		})
	}
}

// Several routers in front of one fleet must not all begin with the first
// upstream of the list.
func TestPickBeginsAnywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	first := make([]int, 4)
	for range 400 {
		l := NewLedger(r.Uint64)
		candidates := make([]Candidate, len(first))
		for i := range candidates {
			candidates[i].Upstream = l.NewUpstream(fmt.Sprint(i))
		}
		first[Pick(candidates, true)]++
	}
	for i, n := range first {
		if n < 60 {
			t.Errorf("Pick() of idle upstreams chose %d first %v of 400 times, want about 100", i, n)
		}
	}
}
