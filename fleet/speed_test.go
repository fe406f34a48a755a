// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"slices"
	"testing"
	"time"
)

// prefilled lets an upstream show so many times how fast it prefills.
func (b *bed) prefilled(at, times int, rate float64) {
	const tokens = 16_384
	for range times {
		p, _ := b.place(prompt(tokens, nil), at)
		b.now = b.now.Add(time.Duration(tokens / rate * float64(time.Second)))
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
}

func TestSpeeds(t *testing.T) {
	tests := []struct {
		name  string
		rates []float64 // 0 is not known
		want  []float64
	}{
		{"none is known", []float64{0, 0, 0}, []float64{1, 1, 1}},
		{"one is known", []float64{8000, 0, 0}, []float64{1, 1, 1}},
		{"all are equal", []float64{8000, 8000, 8000}, []float64{1, 1, 1}},
		{"one is slow", []float64{8000, 8000, 4000}, []float64{1, 1, 0.5}},
		{"one is fast", []float64{8000, 8000, 16_000}, []float64{1, 1, 2}},
		{"in the dead band", []float64{8000, 11_100, 5800}, []float64{1, 1, 1}},
		{"just out of it", []float64{8000, 11_300, 5600}, []float64{1, 1.4125, 0.7}},
		{"much faster", []float64{8000, 8000, 80_000}, []float64{1, 1, 4}},
		{"much slower", []float64{8000, 8000, 800}, []float64{1, 1, 0.25}},
		{"the unknown one counts as the median", []float64{8000, 0, 8000, 4000}, []float64{1, 1, 1, 0.5}},
		{"two of them", []float64{10_000, 30_000}, []float64{0.5, 1.5}},
		{"in the middle of four", []float64{4000, 8000, 12_000, 40_000}, []float64{0.4, 1, 1, 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(len(test.rates))
			for at, rate := range test.rates {
				if rate > 0 {
					b.prefilled(at, 16, rate)
				}
			}
			b.now = b.now.Add(speedsFor)
			b.place(prompt(10, nil))
			for at, want := range test.want {
				u := b.view(t, at)
				if got := b.pool.speeds[at]; math.Abs(got-want) > 0.01 || u.Speed != got {
					t.Errorf("the speed of %v = %v, in view %v, want %v", at, got, u.Speed, want)
				}
				if math.Abs(u.PrefillRate-test.rates[at]) > 0.01*test.rates[at] {
					t.Errorf("PrefillRate of %v = %v, want %v", at, u.PrefillRate, test.rates[at])
				}
			}
		})
	}
}

// Speeds are measured once a second, not at each placement.
func TestSpeedsAreKept(t *testing.T) {
	b := newBed(2)
	b.prefilled(0, 16, 8000)
	b.prefilled(1, 16, 2000)
	b.now = b.now.Add(speedsFor)
	b.place(prompt(10, nil))
	b.pool.speeds[1] = 3
	b.now = b.now.Add(speedsFor - 1)
	b.place(prompt(10, nil))
	if got := b.pool.speeds[1]; got != 3 {
		t.Errorf("the speed within a second = %v, want it as it was", got)
	}
	b.now = b.now.Add(1)
	b.place(prompt(10, nil))
	if got := b.pool.speeds[1]; got != 0.4 {
		t.Errorf("the speed after a second = %v, want 0.4", got)
	}
}

// The fast upstream takes a longer queue, unless the policy is told not to look.
func TestFastOnesTakeMore(t *testing.T) {
	for _, equal := range []bool{false, true} {
		b := newBed(2)
		b.prefilled(0, 16, 8000)
		b.prefilled(1, 16, 32_000)
		b.now = b.now.Add(speedsFor)
		b.options.EqualSpeed = equal
		var tokens [2]int
		for range 200 {
			_, at := b.place(prompt(20_000, nil))
			tokens[at]++
		}
		if more := tokens[1] > 110; more == equal {
			t.Errorf("equal speed %v: 200 requests went %v", equal, tokens)
		}
	}
}

// Two thirds of the requests come out in bursts, as a batch does: what one step
// has computed is not the work of a microsecond.
func TestRateOfBursts(t *testing.T) {
	b := newBed(1)
	const tokens, each = 4096, 3
	for range 40 {
		var burst []*Placement
		for range 2 * each {
			burst = append(burst, b.loaded(0, tokens))
		}
		for step := range 2 {
			b.now = b.now.Add(time.Second)
			for i, p := range burst[step*each:][:each] {
				at := b.now.Add(time.Duration(i) * 100 * time.Microsecond)
				p.FirstOutput(at)
				p.End(CauseEnd, at)
			}
		}
		b.now = b.now.Add(time.Second)
	}
	if got := b.view(t, 0).PrefillRate; got == 0 || got > 1.1*each*tokens {
		t.Errorf("PrefillRate of an engine of %v = %v, want at most that", each*tokens, got)
	}
}

// A silent request is let go when the engine must be done with it.
func TestSilentByRate(t *testing.T) {
	tests := []struct {
		name     string
		measured int
		after    time.Duration
		released bool
	}{
		{"not yet", 16, 3*time.Second - time.Millisecond, false},
		{"done for a second", 16, 3*time.Second + time.Millisecond, true},
		{"nothing is measured", 15, time.Minute, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			b.prefilled(0, test.measured, 8192)
			silent := prompt(16_384, nil)
			silent.Silent = true
			p, _ := b.place(silent)
			b.now = b.now.Add(test.after)
			b.place(Request{})
			want, inferred := 16_384, uint64(0)
			if test.released {
				want, inferred = 0, 1
			}
			u := b.view(t, 0)
			if u.Prefill != want || u.Totals.Releases[CauseInferred] != inferred || u.Requests != 2 {
				t.Errorf("prefill, inferred after %v = %v, %v, want %v, %v", test.after, u.Prefill, u.Totals.Releases[CauseInferred], want, inferred)
			}
			if p.FirstOutput(b.now) == test.released {
				t.Errorf("FirstOutput() of what is let go: %v = %v", test.released, !test.released)
			}
			p.End(CauseEnd, b.now)
		})
	}
}

// Rates do not change where nothing waits to be prefilled.
func TestRateIgnoresDecode(t *testing.T) {
	b := newBed(1)
	for range 16 {
		p := b.loaded(0, 16_384)
		b.now = b.now.Add(2 * time.Second)
		p.FirstOutput(b.now)
		// a long answer, beside warm turns and calls that prefill nothing
		b.now = b.now.Add(time.Minute)
		b.serve(prompt(0, nil))
		b.serve(Request{})
		p.End(CauseEnd, b.now)
	}
	if got := b.view(t, 0).PrefillRate; got != 8192 {
		t.Errorf("PrefillRate = %v, want 8,192", got)
	}
}

// Placing allocates nothing however much is known of the upstreams.
func TestPlaceAllocatesNothing(t *testing.T) {
	b := informed(8)
	req := told("m", 100_000)
	req.Session, req.Tried = 7, b.pool.Names()[:1]
	req.Blocks = text(1, 25_000, 0, 0)
	var p Placement
	usable := slices.Clone(b.usable)
	b.serve(req)
	n := testing.AllocsPerRun(200, func() {
		b.now = b.now.Add(100 * time.Millisecond)
		b.Place(&p, &req, b.pool, usable, &b.options, b.now)
		p.End(CauseCanceled, b.now)
	})
	if n != 0 {
		t.Errorf("Place() and End() allocate %v times, want never", n)
	}
}
