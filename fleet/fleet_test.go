// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/sessions"
)

func viewed(v View) (names []string) {
	for _, u := range v.Upstreams {
		names = append(names, u.Name)
	}
	return names
}

func sum(counts []uint64) (total uint64) {
	for _, n := range counts {
		total += n
	}
	return total
}

// atRest fails the test unless nothing is reserved and everything that was
// placed has been released.
func atRest(t *testing.T, v View) {
	t.Helper()
	for _, u := range v.Upstreams {
		if u.Requests != 0 || u.Prefill != 0 || u.Waiting != 0 {
			t.Errorf("requests, prefill, waiting of %s = %v, %v, %v at rest, want 0", u.Name, u.Requests, u.Prefill, u.Waiting)
		}
		if p, r := sum(u.Totals.Placements[:]), sum(u.Totals.Releases[:]); p != r {
			t.Errorf("%s has %v placements and %v releases at rest, want as many", u.Name, p, r)
		}
	}
}

func TestView(t *testing.T) {
	b := newBed(3)
	if v := b.View(b.now); v.Sessions != 0 || v.Upstreams == nil || len(v.Upstreams) != 0 {
		t.Errorf("View() of a new fleet = %+v, want nothing", v)
	}
	blocks := text(1, 2560, 0, 0)
	b.serve(Request{Session: 7, Tokens: 2600, Blocks: blocks, Prefills: true}, 1)
	b.place(Request{Session: 7, Tokens: 3600, Blocks: blocks, Prefills: true}, 1)
	b.place(Request{Tokens: 100}, 1)
	p, _ := b.place(prompt(10, nil), 1)
	p.End(CauseError, b.now)

	want := UpstreamView{
		Name: "vllm-1:8000", Requests: 2, Prefill: 1040, Waiting: 1, FailedLoad: 1, Sessions: 1,
		PrefixBlocks: 10, PrefixCapacity: DefaultKVTokens / BlockTokens,
		State: "available", Speed: 1, Belief: 1,
		Totals: Totals{PromptTokens: 6210, PrefillTokens: 3650},
	}
	want.Totals.Placements[ReasonNew] = 1
	want.Totals.Placements[ReasonPinned] = 1
	want.Totals.Placements[ReasonLoad] = 1
	want.Totals.Releases[CauseFirstOutput] = 1
	want.Totals.Releases[CauseError] = 1
	want.Totals.FirstOutput.counts[0] = 1
	v := b.View(b.now)
	if v.Sessions != 1 || len(v.Upstreams) != 1 || !reflect.DeepEqual(v.Upstreams[0], want) {
		t.Errorf("View() = %+v, want %+v alone", v, want)
	}
}

// Pods that were gone stayed in the metrics of a router. An upstream that no
// configuration lists is in view for a minute after it
// could have been chosen, and while something is in flight there.
func TestCaseC49DepartedUpstreamLeavesTheView(t *testing.T) {
	b := newBed(4)
	names := b.pool.Names()
	b.List([]string{names[3], names[2]})
	long, _ := b.place(Request{}, 0)
	short, _ := b.place(Request{}, 1)
	short.End(CauseEnd, b.now)

	steps := []struct {
		name  string
		do    func()
		after time.Duration
		want  []int
	}{
		{"at once", func() {}, 0, []int{0, 1, 2, 3}},
		{"after a minute", func() {}, time.Minute, []int{0, 1, 2, 3}},
		{"just after a minute", func() {}, time.Minute + 1, []int{0, 2, 3}},
		{"unlisted once", func() { b.serve(Request{}, 2); b.Unlist(names[2:3]) }, 0, []int{0, 1, 3}},
		{"seen by a placement since", func() { b.serve(Request{}, 2) }, time.Minute, []int{0, 1, 2, 3}},
		{"and not for longer than a minute", func() {}, time.Hour, []int{0, 3}},
		{"listed twice", func() { b.List(names[3:]) }, time.Hour, []int{0, 3}},
		{"unlisted once of twice", func() { b.Unlist(names[3:]) }, time.Hour, []int{0, 3}},
		{"unlisted twice of twice", func() { b.Unlist(names[3:]) }, time.Hour, []int{0}},
		{"nothing in flight", func() { long.End(CauseEnd, start) }, time.Hour, nil},
	}
	for _, s := range steps {
		s.do()
		var want []string
		for _, at := range s.want {
			want = append(want, names[at])
		}
		if got := viewed(b.View(start.Add(s.after))); !slices.Equal(got, want) {
			t.Errorf("%s: View() shows %q, want %q", s.name, got, want)
		}
	}
}

// Departed upstreams are forgotten by the next placement on others.
func TestSweep(t *testing.T) {
	tests := []struct {
		name   string
		before func(b *bed)
		after  time.Duration
		kept   bool
	}{
		{"just seen", func(*bed) {}, time.Minute, true},
		{"seen ten minutes ago", func(*bed) {}, 10 * time.Minute, true},
		{"seen longer ago", func(*bed) {}, 10*time.Minute + time.Second, false},
		{"listed", func(b *bed) { b.List(b.pool.Names()[:1]) }, time.Hour, true},
		{"unlisted", func(b *bed) { b.List(b.pool.Names()[:1]); b.Unlist(b.pool.Names()[:1]) }, time.Hour, false},
		{"in flight", func(b *bed) { b.place(Request{}, 0) }, time.Hour, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			b.serve(prompt(2560, text(1, 2560, 0, 0)), 0)
			test.before(b)
			other := NewPool(b.pool.Names()[1:])
			b.now = b.now.Add(test.after)
			b.Place(new(Placement), &Request{}, other, []int{0}, &b.options, b.now)
			u, kept := b.upstreams[b.pool.Names()[0]]
			if kept != test.kept {
				t.Fatalf("the upstream is known after %v: %v, want %v", test.after, kept, test.kept)
			}
			// the pool that was resolved before must not lead to what is gone
			p, _ := b.place(prompt(2560, text(1, 2560, 0, 0)), 0)
			want := 2560
			if kept {
				want = 0
			}
			if got := p.UncachedTokens(); got != want {
				t.Errorf("UncachedTokens() = %v, want %v", got, want)
			}
			if now := b.upstreams[b.pool.Names()[0]]; (now == u) != kept || now.counters.Waiting() != 1 {
				t.Errorf("the placement is on an upstream that the fleet does not know")
			}
		})
	}
}

// After a quiet quarter of an hour the first placement comes over the same
// upstreams as before. None of them has departed, listed or not.
func TestQuietIsNoDeparture(t *testing.T) {
	b := newBed(2)
	b.serve(prompt(2560, text(1, 2560, 0, 0)), 0)
	b.now = b.now.Add(15 * time.Minute)
	p, _ := b.place(prompt(2560, text(1, 2560, 0, 0)), 0)
	if got := p.UncachedTokens(); got != 0 {
		t.Errorf("UncachedTokens() after a quiet time = %v, want 0", got)
	}
}

// Each placement gives its prefill tokens back once, and the counters say by
// what.
func TestReleases(t *testing.T) {
	tests := []struct {
		name string
		end  func(b *bed, p *Placement)
		want Cause
	}{
		{"first output", func(b *bed, p *Placement) { p.FirstOutput(b.now) }, CauseFirstOutput},
		{"first output twice", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.FirstOutput(b.now) }, CauseFirstOutput},
		{"end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }, CauseEnd},
		{"error", func(b *bed, p *Placement) { p.End(CauseError, b.now) }, CauseError},
		{"canceled", func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }, CauseCanceled},
		{"retried", func(b *bed, p *Placement) { p.End(CauseRetried, b.now) }, CauseRetried},
		{"failed, then its body", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now); p.FirstOutput(b.now) }, CauseError},
		{"failed for a retry", func(b *bed, p *Placement) { p.Fail(CauseRetried, BlameFailure, b.now); p.End(CauseError, b.now) }, CauseRetried},
		{"error after output", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseError, b.now) }, CauseFirstOutput},
		{"inferred", func(b *bed, _ *Placement) {
			later, _ := b.place(prompt(0, nil))
			later.FirstOutput(b.now)
			later.upstream.totals.Releases[CauseFirstOutput]--
			later.upstream.totals.Placements[ReasonLoad]--
			later.End(CauseEnd, b.now)
		}, CauseInferred},
		{"expired", func(b *bed, p *Placement) {
			b.now = b.now.Add(b.options.PrefillTTL + 1)
			b.place(Request{})
			b.now = b.now.Add(time.Second)
			p.FirstOutput(b.now)
		}, CauseExpired},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			p, _ := b.place(Request{Tokens: 1000, Prefills: true, Silent: test.want == CauseInferred})
			test.end(b, p)
			p.End(CauseEnd, b.now)
			p.End(CauseError, b.now)
			p.Fail(CauseError, BlameFailure, b.now)
			if p.FirstOutput(b.now) {
				t.Errorf("FirstOutput() after the end = true, want false")
			}
			u := b.view(t, 0)
			var want [causes]uint64
			want[test.want] = 1
			if u.Totals.Releases != want || u.Prefill != 0 || u.Waiting != 0 {
				t.Errorf("Releases = %v with %v tokens held, want %v by %s", u.Totals.Releases, u.Prefill, want, test.want)
			}
		})
	}
}

// At its TTL a reservation is held, past it the next placement lets it go. The
// request is in flight until it ends.
func TestPrefillTTL(t *testing.T) {
	b := newBed(1)
	b.place(prompt(5000, nil))
	steps := []struct {
		after time.Duration
		want  int
	}{{b.options.PrefillTTL, 5000}, {b.options.PrefillTTL + 1, 0}}
	for i, s := range steps {
		b.now = start.Add(s.after)
		b.place(Request{})
		if got := b.view(t, 0); got.Prefill != s.want || got.Requests != i+2 {
			t.Errorf("prefill, requests after %v = %v, %v, want %v, %v", s.after, got.Prefill, got.Requests, s.want, i+2)
		}
	}
}

func TestFirstOutputTimes(t *testing.T) {
	tests := []struct {
		name   string
		silent bool
		after  []time.Duration
		count  uint64
		sum    float64
		// at most 25 ms, 1 s and 120 s
		buckets [3]uint64
	}{
		{"at once", false, []time.Duration{0}, 1, 0, [3]uint64{1, 1, 1}},
		{"on a bound", false, []time.Duration{25 * time.Millisecond}, 1, 0.025, [3]uint64{1, 1, 1}},
		{"over a bound", false, []time.Duration{26 * time.Millisecond}, 1, 0.026, [3]uint64{0, 1, 1}},
		{"over the last bound", false, []time.Duration{200 * time.Second}, 1, 200, [3]uint64{0, 0, 0}},
		{"before it was placed", false, []time.Duration{-time.Second}, 1, 0, [3]uint64{1, 1, 1}},
		{"silent", true, []time.Duration{time.Second}, 0, 0, [3]uint64{0, 0, 0}},
		{"twice", false, []time.Duration{time.Second, 2 * time.Second}, 1, 1, [3]uint64{0, 1, 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			p, _ := b.place(Request{Tokens: 10, Prefills: true, Silent: test.silent})
			for _, after := range test.after {
				p.FirstOutput(start.Add(after))
			}
			h := b.view(t, 0).Totals.FirstOutput
			count, sum, buckets := h.Cumulative()
			got := [3]uint64{buckets[0.025], buckets[1], buckets[120]}
			if count != test.count || sum != test.sum || got != test.buckets || len(buckets) != len(firstOutputBounds) {
				t.Errorf("Cumulative() = %v, %v, %v, want %v, %v, %v", count, sum, got, test.count, test.sum, test.buckets)
			}
		})
	}
}

// The index follows the options of the placement that records, and a prompt
// that no longer fits makes uncached tokens dearer there.
func TestIndexCapacity(t *testing.T) {
	b := newBed(2)
	for _, test := range []struct{ kvTokens, capacity, blocks int }{
		{2560, 10, 10}, {0, DefaultKVTokens / BlockTokens, 20}, {1280, 5, 5}, {255, 0, 0}, {-1, 0, 0},
	} {
		b.options.KVTokens = test.kvTokens
		b.serve(prompt(5120, text(1, 5120, 0, 0)), 0)
		if got := b.view(t, 0); got.PrefixCapacity != test.capacity || got.PrefixBlocks != test.blocks {
			t.Errorf("KVTokens %v holds %v of %v blocks, want %v of %v", test.kvTokens, got.PrefixBlocks, got.PrefixCapacity, test.blocks, test.capacity)
		}
	}

	b.options.KVTokens = 2560
	b.serve(prompt(2560, text(2, 2560, 0, 0)), 0)
	b.loaded(1, 2000)
	// 3,000 tokens cost 15,000 where they evict, 4,096 + 2,000 + more elsewhere
	if _, at := b.place(prompt(3000, text(3, 3000, 0, 0))); at != 1 {
		t.Errorf("Place() of a cold prompt = %v, want 1 where nothing is evicted", at)
	}
}

// Whatever many requests do at once, in the end nothing is reserved.
func TestConcurrently(t *testing.T) {
	const workers, each, upstreams = 16, 200, 5
	b := newBed(upstreams)
	b.List(b.pool.Names())
	b.options.Sessions.Max = 8
	b.options.PrefillTTL = 20 * time.Millisecond
	var clock atomic.Int64
	now := func() time.Time { return start.Add(time.Duration(clock.Add(int64(time.Microsecond)))) }
	shared := NewPool(b.pool.Names())

	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			pool := shared
			if worker%2 == 0 {
				pool = NewPool(b.pool.Names())
			}
			var p Placement
			for range each {
				usable := r.Perm(upstreams)[:1+r.IntN(upstreams)]
				tokens := r.IntN(6000)
				req := Request{
					Session: sessions.Key(r.IntN(12)), Tokens: tokens,
					Blocks:   text(uint64(r.IntN(3)), tokens/2, uint64(r.IntN(5)), tokens-tokens/2),
					Prefills: r.IntN(8) > 0, Silent: r.IntN(3) == 0, Watched: r.IntN(2) == 0,
					Model: string(rune('a' + r.IntN(3))), TextBytes: 4 * tokens, Learns: r.IntN(2) == 0,
					Tried: pool.Names()[:r.IntN(3)],
				}
				options := b.options
				options.Models = Models(r.IntN(3))
				at := b.Place(&p, &req, pool, usable, &options, now())
				if !slices.Contains(usable, at) || p.Upstream() != pool.Names()[at] {
					t.Errorf("Place() among %v = %v on %s", usable, at, p.Upstream())
				}
				var ending sync.WaitGroup
				for range r.IntN(5) {
					what, cause, blame := r.IntN(10), Cause(r.IntN(Causes)), Blame(r.IntN(4))
					name, n := pool.Names()[r.IntN(upstreams)], float64(r.IntN(100))
					ending.Go(func() {
						switch what {
						case 0:
							p.FirstOutput(now())
						case 1:
							p.Fail(cause, blame, now())
						case 2:
							p.End(cause, now())
						case 3:
							_, _, _ = p.Reason(), p.PromptTokens(), p.UncachedTokens()
							b.View(now())
						case 4:
							p.Usage(engines.Usage{PromptTokens: 3000 + int(n), CachedTokens: engines.Known(n)}, now())
						case 5:
							b.Observe(name, engines.Report{
								Running: engines.Known(n), KVUsage: engines.Known(n / 100), PrefixHits: engines.Known(n),
								KVTokens: engines.Known(20_000 + 100*n), Asleep: n < 10,
							}, now(), time.Millisecond)
							b.ScrapeFailed(name)
						case 6:
							b.ObserveModels(name, models("a", "b"), now(), time.Millisecond)
						case 7:
							b.Drain(name, n < 50)
						case 8:
							b.ServedModels(now())
						case 9:
							p.Progress(now())
							p.Blocked(true)
							p.Blocked(false)
						}
					})
				}
				ending.Wait()
				p.End(Cause(r.IntN(Causes)), now())
			}
		})
	}
	running.Wait()
	v := b.View(now())
	if len(v.Upstreams) != upstreams {
		t.Fatalf("View() shows %v upstreams, want %v", len(v.Upstreams), upstreams)
	}
	atRest(t, v)
	placed, homes := uint64(0), 0
	for _, u := range v.Upstreams {
		placed += sum(u.Totals.Placements[:])
		homes += u.Sessions
	}
	if placed == 0 || placed > workers*each {
		t.Errorf("%v of %v requests were counted as placed", placed, workers*each)
	}
	if homes != v.Sessions || v.Sessions > b.options.Sessions.Max {
		t.Errorf("%v sessions with %v homes at rest, want as many, at most %v", v.Sessions, homes, b.options.Sessions.Max)
	}
	for name, u := range b.upstreams {
		if u.streams != 0 || u.blocked.Load() != 0 || u.health.trial != nil {
			t.Errorf("%s has %v streams, %v of them blocked, and a trial %v at rest, want none",
				name, u.streams, u.blocked.Load(), u.health.trial)
		}
	}
	for s := range b.sessions.All() {
		if s.Live() != 0 {
			t.Errorf("a session has %v live requests at rest, want 0", s.Live())
		}
	}
}
