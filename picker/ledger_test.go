// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	many := func(n int, d time.Duration) (list []time.Duration) {
		for range n {
			list = append(list, d)
		}
		return list
	}
	tests := []struct {
		name string
		took []time.Duration
		want time.Duration
	}{
		{"none", nil, 0},
		{"one", []time.Duration{3}, 3},
		{"two take the upper", []time.Duration{3, 1}, 3},
		{"three", []time.Duration{9, 1, 3}, 3},
		{"an outlier", []time.Duration{1, 2, 3, 4, time.Hour}, 3},
		{"half of the latest 64", append(many(64, 1), many(32, 9)...), 9},
		{"fewer than half of the latest 64", append(many(64, 1), many(31, 9)...), 1},
		{"all of the latest 64", append(many(1000, 1), many(64, 9)...), 9},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var d durations
			for _, took := range test.took {
				d.add(took)
			}
			if got := d.median(); got != test.want {
				t.Errorf("median(%v) = %v, want %v", test.took, got, test.want)
			}
		})
	}
}

func TestFailed(t *testing.T) {
	tests := []struct {
		name     string
		took     time.Duration
		failures []time.Duration
		at       time.Duration
		want     float64
	}{
		{name: "no failure", at: time.Second, want: 0},
		{name: "at once", failures: []time.Duration{0}, want: 1},
		{name: "two at once", failures: []time.Duration{0, 0}, want: 2},
		{name: "at least a second", failures: []time.Duration{0}, at: time.Second, want: math.Exp(-1)},
		{name: "at least a second though requests take less", took: time.Millisecond, failures: []time.Duration{0}, at: time.Second, want: math.Exp(-1)},
		{name: "after the median", took: 20 * time.Second, failures: []time.Duration{0}, at: 20 * time.Second, want: math.Exp(-1)},
		{name: "the older one has decayed", took: 10 * time.Second, failures: []time.Duration{0, 10 * time.Second}, at: 10 * time.Second, want: 1 + math.Exp(-1)},
		{name: "the rest is dropped", failures: []time.Duration{0}, at: 5 * time.Second, want: 0},
		{name: "before it happened", failures: []time.Duration{time.Second}, at: 0, want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			u := l.NewUpstream("a")
			if test.took > 0 {
				l.Completed(test.took)
			}
			for _, at := range test.failures {
				l.Failed(u, start.Add(at))
			}
			if got := u.Failed(start.Add(test.at)); math.Abs(got-test.want) > 1e-9 {
				t.Errorf("Failed(%v) = %v, want %v", test.at, got, test.want)
			}
		})
	}
}

// At a steady rate of failures the decay stands for the load that a request of
// the median time at the same rate has: rate times time.
func TestFailedSteadily(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	l.Completed(10 * time.Second)
	now := start
	for range 2000 {
		now = now.Add(100 * time.Millisecond)
		l.Failed(u, now)
	}
	if got := u.Failed(now); math.Abs(got-100) > 2 {
		t.Errorf("Failed() at ten failures a second = %v, want about 100", got)
	}
}

func count(t *testing.T, u *Upstream, requests, waiting, prefill int) {
	t.Helper()
	if got, want := [3]int{u.Requests(), u.Waiting(), u.Prefill()}, [3]int{requests, waiting, prefill}; got != want {
		t.Errorf("requests, waiting, prefill of %s = %v, want %v", u.Name(), got, want)
	}
	if got, want := u.Idle(), requests == 0 && waiting == 0 && prefill == 0; got != want {
		t.Errorf("Idle() of %s = %v, want %v", u.Name(), got, want)
	}
}

func TestOpen(t *testing.T) {
	tests := []struct {
		name    string
		claim   Claim
		tokens  int
		waiting int
	}{
		{"prefills", Claim{Tokens: 500, Prefills: true}, 500, 1},
		{"prefills nothing", Claim{Prefills: true}, 0, 1},
		{"prefills less than nothing", Claim{Tokens: -9, Prefills: true}, 0, 1},
		{"does not prefill", Claim{Tokens: 500}, 0, 0},
		{"does not prefill and is silent", Claim{Tokens: 500, Silent: true}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			u := l.NewUpstream("a")
			var r Reservation
			l.Open(&r, u, test.claim, start)
			count(t, u, 1, test.waiting, test.tokens)
			if r.Upstream() != u || !r.Started().Equal(start) || !r.Open() || r.Waits() != (test.waiting == 1) || r.Tokens() != test.tokens {
				t.Errorf("Open(%+v) recorded %+v, want %v tokens on a", test.claim, r, test.tokens)
			}
			if held := l.Close(&r); held != (test.waiting == 1) {
				t.Errorf("Close() = %v, want %v", held, test.waiting == 1)
			}
			count(t, u, 0, 0, 0)
			if r.Open() || r.Waits() || r.Tokens() != test.tokens {
				t.Errorf("Close() left %+v, want %v tokens, neither open nor waiting", r, test.tokens)
			}
		})
	}
}

// Whatever ends a reservation, and in whatever order, each of its counters goes
// down once.
func TestEndsInEveryOrder(t *testing.T) {
	ends := []struct {
		name string
		do   func(*Ledger, *Reservation) bool
	}{
		{"first output", func(l *Ledger, r *Reservation) bool { return l.FirstOutput(r, func(*Reservation) {}) }},
		{"release", func(l *Ledger, r *Reservation) bool { return l.Release(r) }},
		{"expire", func(l *Ledger, r *Reservation) (held bool) {
			l.Expire(r.Upstream(), r.Started().Add(1), func(*Reservation) { held = true })
			return held
		}},
		{"close", func(l *Ledger, r *Reservation) bool { return l.Close(r) }},
	}
	n := len(ends)
	for order := range n * n * n * n {
		l := NewLedger(counter())
		u := l.NewUpstream("a")
		var other, r Reservation
		l.Open(&r, u, Claim{Tokens: 700, Prefills: true}, start)
		l.Open(&other, u, Claim{Tokens: 11, Prefills: true}, start.Add(time.Hour))
		var names strings.Builder
		released, closed := 0, false
		for digits, i := order, 0; i < n; digits, i = digits/n, i+1 {
			end := ends[digits%n]
			names.WriteString(end.name + ", ")
			if end.do(l, &r) {
				released++
			}
			closed = closed || end.name == "close"
			requests := 2
			if closed {
				requests = 1
			}
			if got, want := [3]int{u.Requests(), u.Waiting(), u.Prefill()}, [3]int{requests, 1, 11}; got != want {
				t.Fatalf("requests, waiting, prefill after %s= %v, want %v", names.String(), got, want)
			}
		}
		if released != 1 {
			t.Errorf("%sreleased %v times, want once", names.String(), released)
		}
	}
}

func TestEndsOfTheZeroReservation(t *testing.T) {
	l := NewLedger(counter())
	var r Reservation
	if l.FirstOutput(&r, nil) || l.Release(&r) || l.Close(&r) || r.Open() || r.Waits() || r.Upstream() != nil {
		t.Errorf("the ends of the zero reservation = true, want false")
	}
}

func TestReservationIsReused(t *testing.T) {
	l := NewLedger(counter())
	a, b := l.NewUpstream("a"), l.NewUpstream("b")
	var r Reservation
	l.Open(&r, a, Claim{Tokens: 5, Prefills: true}, start)
	l.Close(&r)
	l.Open(&r, b, Claim{Tokens: 7, Prefills: true}, start)
	count(t, a, 0, 0, 0)
	count(t, b, 1, 1, 7)
}

// Counters that were lowered by something else must not go below 0, where they
// would make the upstream look better than idle.
func TestFloors(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	var r Reservation
	l.Open(&r, u, Claim{Tokens: 5, Prefills: true}, start)
	u.requests, u.prefill = 0, 2
	l.Close(&r)
	count(t, u, 0, 0, 0)
}

// An upstream that left and came back under the same name has new counters; a
// reservation from before holds on to the old ones.
func TestSameNameOtherUpstream(t *testing.T) {
	l := NewLedger(counter())
	before, after := l.NewUpstream("a"), l.NewUpstream("a")
	var old, young Reservation
	l.Open(&old, before, Claim{Tokens: 5, Prefills: true, Silent: true}, start)
	l.Open(&young, after, Claim{Tokens: 7, Prefills: true}, start)
	l.FirstOutput(&young, func(*Reservation) { t.Errorf("FirstOutput() inferred that of another upstream") })
	count(t, before, 1, 1, 5)
	l.Close(&old)
	count(t, before, 0, 0, 0)
	count(t, after, 1, 0, 0)
}

func TestInference(t *testing.T) {
	type placed struct {
		on     int
		silent bool
	}
	silent := func(on int) placed { return placed{on, true} }
	streamed := func(on int) placed { return placed{on, false} }
	tests := []struct {
		name   string
		placed []placed
		output int
		want   []int
	}{
		{"none older", []placed{streamed(0), silent(0)}, 0, nil},
		{"the older one", []placed{silent(0), streamed(0)}, 1, []int{0}},
		{"several, oldest first", []placed{silent(0), silent(0), streamed(0)}, 2, []int{0, 1}},
		{"not a younger one", []placed{silent(0), streamed(0), silent(0)}, 1, []int{0}},
		{"not a streamed one", []placed{streamed(0), silent(0), streamed(0)}, 2, []int{1}},
		{"not on another upstream", []placed{silent(1), silent(0), streamed(0)}, 2, []int{1}},
		{"a silent one that ends", []placed{silent(0), silent(0)}, 1, []int{0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			upstreams := []*Upstream{l.NewUpstream("a"), l.NewUpstream("b")}
			reservations := make([]Reservation, len(test.placed))
			for i, p := range test.placed {
				l.Open(&reservations[i], upstreams[p.on], Claim{Tokens: 10, Prefills: true, Silent: p.silent}, start)
			}
			var got []int
			l.FirstOutput(&reservations[test.output], func(r *Reservation) {
				for i := range reservations {
					if r == &reservations[i] {
						got = append(got, i)
					}
				}
			})
			if !slices.Equal(got, test.want) {
				t.Errorf("FirstOutput(%v) inferred %v, want %v", test.output, got, test.want)
			}
			waiting := upstreams[0].Waiting() + upstreams[1].Waiting()
			if want := len(test.placed) - 1 - len(test.want); waiting != want {
				t.Errorf("%v wait after FirstOutput(%v), want %v", waiting, test.output, want)
			}
		})
	}
}

func TestExpire(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	reservations := make([]Reservation, 4)
	for i := range reservations {
		l.Open(&reservations[i], u, Claim{Tokens: 10, Prefills: true}, start.Add(time.Duration(i)*time.Second))
	}
	tests := []struct {
		name     string
		deadline time.Duration
		expired  int
		waiting  int
	}{
		{"long before", -time.Hour, 0, 4},
		{"at the first", 0, 0, 4},
		{"just after the first", 1, 1, 3},
		{"again", 1, 0, 3},
		{"after the third", 2500 * time.Millisecond, 2, 1},
		{"after all", time.Hour, 1, 0},
		{"of none", 2 * time.Hour, 0, 0},
	}
	for _, test := range tests {
		expired := 0
		l.Expire(u, start.Add(test.deadline), func(*Reservation) { expired++ })
		if expired != test.expired || u.Waiting() != test.waiting || u.Prefill() != 10*test.waiting || u.Requests() != 4 {
			t.Errorf("%s: Expire(%v) released %v and left %v waiting, want %v and %v",
				test.name, test.deadline, expired, u.Waiting(), test.expired, test.waiting)
		}
	}
}

// What ended since the last report was in flight when the engine was last asked
// about, and may still be counted in what it says.
func TestTakePeak(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	reservations := make([]Reservation, 9)
	opened := 0
	open := func(n int) {
		for range n {
			l.Open(&reservations[opened], u, Claim{Prefills: opened%2 == 0}, start)
			opened++
		}
	}
	closed := func(n int) {
		for range n {
			opened--
			l.Close(&reservations[opened])
		}
	}
	steps := []struct {
		name string
		do   func()
		want int
	}{
		{"nothing was placed", func() {}, 0},
		{"three were", func() { open(3) }, 3},
		{"they still are", func() {}, 3},
		{"six more came and eight went", func() { open(6); closed(8) }, 9},
		{"one is left", func() {}, 1},
		{"it went", func() { closed(1) }, 1},
		{"nothing is left", func() {}, 0},
		{"two came and went", func() { open(1); closed(1); open(1); closed(1) }, 1},
		{"nothing came", func() {}, 0},
	}
	for _, s := range steps {
		s.do()
		if got := u.TakePeak(); got != s.want {
			t.Errorf("%s: TakePeak() = %v, want %v", s.name, got, s.want)
		}
	}
}

// An engine of 1,000 tokens per second, asked about a queue that was placed one
// second apart.
func TestInfer(t *testing.T) {
	type placed struct {
		tokens int
		silent bool
	}
	silent := func(tokens int) placed { return placed{tokens, true} }
	streamed := func(tokens int) placed { return placed{tokens, false} }
	tests := []struct {
		name   string
		placed []placed
		rate   float64
		after  time.Duration // since the first was placed
		want   int           // how many are released, from the first on
	}{
		{name: "none wait", after: time.Hour, want: 0},
		{name: "not yet", placed: []placed{silent(2000)}, after: 3*time.Second - 1, want: 0},
		{name: "done for a second", placed: []placed{silent(2000)}, after: 3 * time.Second, want: 1},
		{name: "nothing to prefill", placed: []placed{silent(0)}, after: time.Second, want: 1},
		{name: "what was before it took time too", placed: []placed{silent(2000), silent(3000)}, after: 7*time.Second - 1, want: 1},
		{name: "all of it is done", placed: []placed{silent(2000), silent(3000)}, after: 7 * time.Second, want: 2},
		{name: "a head that streams is waited for", placed: []placed{streamed(2000), silent(3000)}, after: time.Hour, want: 0},
		{name: "up to one that streams", placed: []placed{silent(2000), streamed(1), silent(3000)}, after: time.Hour, want: 1},
		{name: "so slow that no duration holds it", placed: []placed{silent(math.MaxInt32)}, rate: 1e-9, after: time.Hour, want: 0},
		{name: "fast", placed: []placed{silent(math.MaxInt32)}, rate: math.MaxFloat64, after: time.Second, want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := NewLedger(counter())
			u := l.NewUpstream("a")
			reservations := make([]Reservation, len(test.placed))
			left := 0
			for i, p := range test.placed {
				l.Open(&reservations[i], u, Claim{Tokens: p.tokens, Prefills: true, Silent: p.silent}, start.Add(time.Duration(i)*time.Second))
				if i >= test.want {
					left += p.tokens
				}
			}
			rate := test.rate
			if rate == 0 {
				rate = 1000
			}
			at := 0
			l.Infer(u, rate, start.Add(test.after), func(r *Reservation) {
				if r != &reservations[at] {
					t.Errorf("Infer() released another than reservation %v", at)
				}
				at++
			})
			if at != test.want {
				t.Errorf("Infer() after %v released %v, want %v", test.after, at, test.want)
			}
			count(t, u, len(test.placed), len(test.placed)-test.want, left)
		})
	}
}

func TestInferAllocatesNothing(t *testing.T) {
	l := NewLedger(counter())
	u := l.NewUpstream("a")
	var r Reservation
	inferred := func(*Reservation) {}
	n := testing.AllocsPerRun(100, func() {
		l.Open(&r, u, Claim{Tokens: 1000, Prefills: true, Silent: true}, start)
		l.Infer(u, 1000, start, inferred)
		l.Infer(u, 1000, start.Add(time.Minute), inferred)
		l.Close(&r)
		u.TakePeak()
	})
	if n != 0 {
		t.Errorf("Infer() allocates %v times, want never", n)
	}
}
