// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// loaded puts tokens of prefill on an upstream.
func (b *bed) loaded(at, tokens int) *Placement {
	p, _ := b.place(prompt(tokens, nil), at)
	return p
}

func TestReasons(t *testing.T) {
	const a, z = 0, 1
	tests := []struct {
		name    string
		before  func(b *bed)
		request Request
		usable  []int
		at      int
		reason  Reason
	}{
		{
			name:    "no session, no cache",
			before:  func(b *bed) { b.loaded(a, 5000) },
			request: prompt(1000, nil), at: z, reason: ReasonLoad,
		},
		{
			name:    "no session, part of the prompt cached",
			before:  func(b *bed) { b.serve(prompt(2048, text(1, 2048, 0, 0)), z); b.serve(prompt(9, nil), a) },
			request: prompt(3000, text(1, 2048, 1, 952)), at: z, reason: ReasonPrefix,
		},
		{
			name: "no session, part of the prompt cached where it is full",
			before: func(b *bed) {
				b.serve(prompt(2048, text(1, 2048, 0, 0)), z)
				b.loaded(z, 5000)
			},
			request: prompt(3000, text(1, 2048, 1, 952)), at: a, reason: ReasonLoad,
		},
		{
			name:    "no session and no prefill",
			before:  func(b *bed) { b.loaded(a, 5000) },
			request: Request{Tokens: 3000}, at: z, reason: ReasonLoad,
		},
		{
			name:    "first of a session",
			before:  func(b *bed) { b.loaded(a, 5000) },
			request: turn(7, 1000), at: z, reason: ReasonNew,
		},
		{
			name:    "second of a session",
			before:  func(b *bed) { b.serve(turn(7, 1000), a) },
			request: turn(7, 1200), at: a, reason: ReasonPinned,
		},
		{
			name: "second while the first is in flight",
			before: func(b *bed) {
				b.place(turn(7, 1000), a)
			},
			request: turn(7, 1000), at: a, reason: ReasonPinned,
		},
		{
			name:    "home is loaded",
			before:  func(b *bed) { b.serve(turn(7, 1000), a); b.loaded(a, 40_000) },
			request: turn(7, 1200), at: z, reason: ReasonMovedPressure,
		},
		{
			name:    "home is not usable",
			before:  func(b *bed) { b.serve(turn(7, 1000), a) },
			request: turn(7, 1200), usable: []int{z}, at: z, reason: ReasonMovedUnavailable,
		},
		{
			name: "home was written by the move",
			before: func(b *bed) {
				b.serve(turn(7, 1000), a)
				b.serve(turn(7, 1200), z)
			},
			request: turn(7, 1400), at: z, reason: ReasonPinned,
		},
		{
			name: "the session has expired",
			before: func(b *bed) {
				b.serve(turn(7, 1000), a)
				b.now = b.now.Add(b.options.Sessions.TTL + 1)
			},
			request: turn(7, 1200), at: z, reason: ReasonNew,
		},
		{
			name: "no room for the session",
			before: func(b *bed) {
				b.options.Sessions.Max = 1
				b.place(turn(8, 1000), a)
			},
			request: turn(7, 1200), at: z, reason: ReasonLoad,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			test.before(b)
			p, at := b.place(test.request, test.usable...)
			if at != test.at || p.Reason() != test.reason || p.Upstream() != b.pool.Names()[test.at] {
				t.Errorf("Place(%+v) = %v for %q, want %v for %q", test.request, at, p.Reason(), test.at, test.reason)
			}
		})
	}
}

func TestNames(t *testing.T) {
	var got []string
	for r := range Reasons {
		got = append(got, Reason(r).String())
	}
	for c := range Causes {
		got = append(got, Cause(c).String())
	}
	want := []string{
		"new", "pinned", "moved_pressure", "moved_unavailable", "prefix", "load", "shadow",
		"first_output", "end", "error", "canceled", "retried", "inferred", "expired",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the names are %q, want %q", got, want)
	}
}

// The home costs its request cost, its prefill and the congestion of what the
// prompt grew by more than the idle upstream. Exactly at stickiness it stays.
func TestStickinessBoundary(t *testing.T) {
	tests := []struct {
		name    string
		prefill int
		reason  Reason
	}{
		{"under", 32_767 - 4096, ReasonPinned},
		{"at", 32_768 - 4096, ReasonPinned},
		{"over", 32_769 - 4096, ReasonMovedPressure},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			b.options.Congestion = 0
			b.serve(turn(7, 1000), 0)
			b.loaded(0, test.prefill)
			// a prompt that shrank counts whole, at home as elsewhere
			if p, _ := b.place(turn(7, 900)); p.Reason() != test.reason {
				t.Errorf("Place() with %v tokens of prefill at home is %q, want %q", test.prefill, p.Reason(), test.reason)
			}
		})
	}
}

func TestPlaceNowhere(t *testing.T) {
	b := newBed(2)
	var p Placement
	req := turn(1, 1000)
	if got := b.Place(&p, &req, b.pool, nil, &b.options, b.now); got != -1 {
		t.Errorf("Place() among none = %v, want -1", got)
	}
	p.End(CauseEnd, b.now)
	if got := b.View(b.now); got.Sessions != 0 {
		t.Errorf("Place() among none began a session, want none")
	}
}

// The zero value is placed nowhere, so there is nothing that its methods end.
func TestZeroPlacement(t *testing.T) {
	ends := []struct {
		name string
		end  func(*Placement)
	}{
		{"FirstOutput", func(p *Placement) { p.FirstOutput(start) }},
		{"Fail", func(p *Placement) { p.Fail(CauseError, BlameFailure, start) }},
		{"End", func(p *Placement) { p.End(CauseEnd, start) }},
	}
	for _, test := range ends {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%s() of the zero placement panics: %v, want nothing", test.name, r)
				}
			}()
			test.end(new(Placement))
		})
	}
}

func TestGrowth(t *testing.T) {
	tests := []struct {
		name   string
		served []int
		tokens int
		at     int
		want   int
	}{
		{"first request", nil, 5000, 0, 5000},
		{"grew", []int{5000}, 5600, 0, 600},
		{"the same", []int{5000}, 5000, 0, 0},
		{"shrank by one", []int{5000}, 4999, 0, 4999},
		{"grew after it shrank", []int{5000, 2000}, 2100, 0, 100},
		{"not at home", []int{5000}, 5600, 1, 5600},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			for _, tokens := range test.served {
				b.serve(turn(7, tokens), 0)
			}
			p, _ := b.place(turn(7, test.tokens), test.at)
			if got := p.UncachedTokens(); got != test.want {
				t.Errorf("UncachedTokens() = %v, want %v", got, test.want)
			}
			if got := p.PromptTokens(); got != test.tokens {
				t.Errorf("PromptTokens() = %v, want %v", got, test.tokens)
			}
			if got := b.view(t, test.at).Prefill; got != test.want {
				t.Errorf("Prefill = %v, want %v", got, test.want)
			}
		})
	}
}

func TestUncachedByBlocks(t *testing.T) {
	known := text(1, 4096, 0, 0)
	tests := []struct {
		name    string
		request Request
		off     bool
		want    int
	}{
		{"all of it", prompt(4096, known), false, 0},
		{"and a tail", prompt(4396, text(1, 4096, 1, 300)), false, 300},
		{"half of it", prompt(4096, text(1, 2048, 1, 2048)), false, 2048},
		{"none of it", prompt(4096, text(2, 4096, 0, 0)), false, 4096},
		{"more blocks than tokens", prompt(100, known), false, 0},
		{"not read", prompt(4096, nil), false, 4096},
		{"the index is off", prompt(4096, known), true, 4096},
		{"a session the index has not seen counts its growth", Request{Session: 7, Tokens: 9500, Blocks: text(3, 9500, 0, 0), Prefills: true}, false, 500},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			b.serve(prompt(4096, known))
			b.serve(turn(7, 9000))
			b.options.PrefixIndex = !test.off
			p, _ := b.place(test.request)
			if got := p.UncachedTokens(); got != test.want {
				t.Errorf("UncachedTokens() = %v, want %v", got, test.want)
			}
		})
	}
}

// What is cached of a session whose prompt the index knows is for the index to
// say: text that others share must not make it look less cached than it is, nor
// an evicted prompt more.
func TestGrowthRuleEndsWithTheFirstRecordedPrompt(t *testing.T) {
	shared := text(1, 4096, 0, 0)
	session := func(tokens int, blocks []uint64) Request {
		return Request{Session: 7, Tokens: tokens, Blocks: blocks, Prefills: true}
	}
	b := newBed(1)
	b.serve(prompt(4096, shared))
	b.serve(turn(7, 9000))
	steps := []struct {
		name    string
		request Request
		want    int
	}{
		{"not recorded yet: its growth, though others share its beginning", session(9500, text(1, 4096, 3, 5404)), 500},
		{"recorded: its blocks", session(10_000, text(1, 4096, 3, 5904)), 10_000 - 4096 - 5376},
		{"recorded, but this is another prompt", session(10_500, text(4, 10_500, 0, 0)), 10_500},
	}
	for _, step := range steps {
		p, _ := b.place(step.request)
		if got := p.UncachedTokens(); got != step.want {
			t.Errorf("%s: UncachedTokens() = %v, want %v", step.name, got, step.want)
		}
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
}

// Only a request that has shown output or ended well says how long its
// session's prompt is.
func TestSizeAdvancesOnSuccess(t *testing.T) {
	tests := []struct {
		name string
		end  func(b *bed, p *Placement)
		want int
	}{
		{"in flight", func(*bed, *Placement) {}, 1000},
		{"first output", func(b *bed, p *Placement) { p.FirstOutput(b.now) }, 3000},
		{"first output, then an error", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseError, b.now) }, 3000},
		{"end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }, 3000},
		{"canceled", func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }, 1000},
		{"canceled after output", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseCanceled, b.now) }, 3000},
		{"error", func(b *bed, p *Placement) { p.End(CauseError, b.now) }, 1000},
		{"retried", func(b *bed, p *Placement) { p.End(CauseRetried, b.now) }, 1000},
		{"failed", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now) }, 1000},
		{"failed and ended", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now); p.End(CauseEnd, b.now) }, 1000},
		{"failed, then its body", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now); p.FirstOutput(b.now) }, 1000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			b.serve(turn(7, 1000), 0)
			p, _ := b.place(turn(7, 3000), 0)
			test.end(b, p)
			if got := b.sessions.Find(7).Size; got != test.want {
				t.Errorf("Size = %v, want %v", got, test.want)
			}
		})
	}
}

// A request that finishes its prefill at the former home says nothing about
// what the new one holds: the next turn there must not be charged by the growth
// over a prompt that this upstream has never seen.
func TestFormerHomeDoesNotSetSize(t *testing.T) {
	b := newBed(2)
	slow, _ := b.place(turn(7, 90_000), 0)
	b.serve(turn(7, 2000), 1)
	slow.FirstOutput(b.now)
	if home := b.sessions.Find(7).Home(); home != b.pool.Names()[1] {
		t.Fatalf("Home() = %q, want %q", home, b.pool.Names()[1])
	}
	if p, _ := b.place(turn(7, 90_100), 1); p.UncachedTokens() != 90_100-2000 {
		t.Errorf("UncachedTokens() at the new home = %v, want %v", p.UncachedTokens(), 90_100-2000)
	}
}

// What a failed attempt has taught the session is taken back, and only that.
func TestHomeIsTakenBack(t *testing.T) {
	type step struct {
		do string
		id int
		at int
	}
	fail := func(id int) step { return step{"fail", id, 0} }
	succeed := func(id int) step { return step{"succeed", id, 0} }
	place := func(id, at int) step { return step{"place", id, at} }
	const none = -1
	tests := []struct {
		name  string
		steps []step
		home  int
	}{
		{"alone", []step{place(1, 0), fail(1)}, none},
		{"at home", []step{place(1, 0), succeed(1), place(2, 0), fail(2)}, 0},
		{"moved", []step{place(1, 0), succeed(1), place(2, 1), fail(2)}, 0},
		{"moved and succeeded", []step{place(1, 0), succeed(1), place(2, 1), succeed(2)}, 1},
		{"a sibling succeeded at the same place", []step{place(1, 0), place(2, 0), succeed(2), fail(1)}, 0},
		{"a sibling succeeds at the same place afterwards", []step{place(1, 0), place(2, 0), fail(1), succeed(2)}, 0},
		{"a sibling that moved it elsewhere", []step{place(1, 0), place(2, 1), fail(1), succeed(2)}, 1},
		{"a sibling that moved it elsewhere and fails later", []step{place(1, 0), succeed(1), place(2, 1), place(3, 0), fail(2), succeed(3)}, 0},
		{"the sibling that moved it fails, the first succeeds", []step{place(1, 0), place(2, 1), fail(2), succeed(1)}, 0},
		{"the first succeeds, the sibling that moved it fails", []step{place(1, 0), place(2, 1), succeed(1), fail(2)}, 0},
		{"a success at a former home does not count", []step{place(1, 0), place(2, 1), succeed(2), succeed(1), place(3, 2), fail(3)}, 1},
		{"both fail, the first one first", []step{place(1, 0), place(2, 1), fail(1), fail(2)}, none},
		{"both fail, the second one first", []step{place(1, 0), place(2, 1), fail(2), fail(1)}, none},
		{"two moves from a good home fail", []step{place(1, 0), succeed(1), place(2, 1), place(3, 2), fail(2), fail(3)}, 0},
		{"two moves from a good home fail in the other order", []step{place(1, 0), succeed(1), place(2, 1), place(3, 2), fail(3), fail(2)}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(3)
			b.List(b.pool.Names())
			placements := map[int]*Placement{}
			for _, s := range test.steps {
				switch p := placements[s.id]; s.do {
				case "place":
					placements[s.id], _ = b.place(turn(7, 1000), s.at)
				case "fail":
					p.Fail(CauseError, BlameNone, b.now)
				case "succeed":
					p.FirstOutput(b.now)
				}
			}
			home := ""
			if test.home != none {
				home = b.pool.Names()[test.home]
			}
			if got := b.sessions.Find(7).Home(); got != home {
				t.Errorf("Home() = %q, want %q", got, home)
			}
			for at, name := range b.pool.Names() {
				want := 0
				if name == home {
					want = 1
				}
				if got := b.view(t, at).Sessions; got != want {
					t.Errorf("Sessions of %s = %v, want %v", name, got, want)
				}
			}
			for _, p := range placements {
				p.End(CauseEnd, b.now)
			}
			if got := b.View(b.now).Sessions; got != min(1, len(home)) {
				t.Errorf("Sessions after all ended = %v, want %v", got, min(1, len(home)))
			}
		})
	}
}

func TestIndexIsTakenBack(t *testing.T) {
	blocks := text(1, 2560, 0, 0)
	tests := []struct {
		name string
		end  func(b *bed, p *Placement)
		want int
	}{
		{"in flight", func(*bed, *Placement) {}, 10},
		{"success", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }, 10},
		{"error", func(b *bed, p *Placement) { p.End(CauseError, b.now) }, 4},
		{"retried", func(b *bed, p *Placement) { p.End(CauseRetried, b.now) }, 4},
		{"failed without blame", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now) }, 4},
		{"failed twice", func(b *bed, p *Placement) { p.Fail(CauseError, BlameFailure, b.now); p.End(CauseRetried, b.now) }, 4},
		{"canceled", func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }, 10},
		{"error after output", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseError, b.now) }, 10},
		{"output after the error", func(b *bed, p *Placement) { p.Fail(CauseError, BlameFailure, b.now); p.FirstOutput(b.now) }, 4},
		{"a sibling that succeeds", func(b *bed, p *Placement) {
			b.serve(prompt(2560, blocks))
			p.End(CauseError, b.now)
		}, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			b.serve(prompt(1024, blocks[:4]))
			p, _ := b.place(prompt(2560, blocks))
			test.end(b, p)
			if got := b.view(t, 0).PrefixBlocks; got != test.want {
				t.Errorf("PrefixBlocks = %v, want %v", got, test.want)
			}
		})
	}
}

// Three requests over one text: the middle one succeeds and the others fail.
// The upstream has the text in its cache.
func TestIndexKeepsWhatOneOfThreeHasShown(t *testing.T) {
	for _, order := range [][2]int{{0, 2}, {2, 0}} {
		b := newBed(1)
		blocks := text(1, 2560, 0, 0)
		var placements [3]*Placement
		for i := range placements {
			placements[i], _ = b.place(prompt(2560, blocks))
		}
		placements[1].FirstOutput(b.now)
		for _, i := range order {
			placements[i].End(CauseError, b.now)
		}
		if got := b.view(t, 0).PrefixBlocks; got != 10 {
			t.Errorf("PrefixBlocks after %v failed = %v, want 10", order, got)
		}
	}
}

// A request that does not prefill is in flight, and nothing else.
func TestRequestsThatDoNotPrefill(t *testing.T) {
	ends := []struct {
		name string
		end  func(b *bed, p *Placement)
	}{
		{"end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }},
		{"first output and end", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseEnd, b.now) }},
		{"canceled", func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }},
		{"failed without blame", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now); p.End(CauseEnd, b.now) }},
	}
	for _, test := range ends {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(1)
			b.serve(turn(7, 1000))
			before := b.view(t, 0)
			p, _ := b.place(Request{Session: 8, Tokens: 5000, Blocks: text(1, 5000, 0, 0)})
			during := before
			during.Requests++
			if got := b.view(t, 0); !reflect.DeepEqual(got, during) {
				t.Errorf("View() while it is in flight = %+v, want %+v", got, during)
			}
			if p.UncachedTokens() != 0 {
				t.Errorf("UncachedTokens() = %v, want 0", p.UncachedTokens())
			}
			test.end(b, p)
			if got := b.view(t, 0); !reflect.DeepEqual(got, before) {
				t.Errorf("View() after %s = %+v, want %+v", test.name, got, before)
			}
			if got := b.View(b.now).Sessions; got != 1 {
				t.Errorf("Sessions = %v, want 1", got)
			}
		})
	}
}

// The load of a failure stays as long as a request of the fleet takes. Calls
// that only count tokens take a millisecond and say nothing about that.
func TestMedianIgnoresRequestsThatDoNotPrefill(t *testing.T) {
	b := newBed(1)
	for range 10 {
		p, _ := b.place(prompt(1000, nil))
		p.End(CauseEnd, b.now.Add(20*time.Second))
	}
	for range 100 {
		p, _ := b.place(Request{Tokens: 1000})
		p.End(CauseEnd, b.now.Add(time.Millisecond))
	}
	p, _ := b.place(prompt(1000, nil))
	p.End(CauseError, b.now)
	b.now = b.now.Add(10 * time.Second)
	if got := b.view(t, 0).FailedLoad; got < 0.5 {
		t.Errorf("FailedLoad after half of the median request time = %.2f, want over 0.5", got)
	}
}

func TestBlame(t *testing.T) {
	tests := []struct {
		name string
		end  func(b *bed, p *Placement)
		want float64
	}{
		{"end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now) }, 0},
		{"canceled", func(b *bed, p *Placement) { p.End(CauseCanceled, b.now) }, 0},
		{"error", func(b *bed, p *Placement) { p.End(CauseError, b.now) }, 1},
		{"retried", func(b *bed, p *Placement) { p.End(CauseRetried, b.now) }, 1},
		{"error after output", func(b *bed, p *Placement) { p.FirstOutput(b.now); p.End(CauseError, b.now) }, 1},
		{"failed and ended with an error", func(b *bed, p *Placement) { p.Fail(CauseError, BlameFailure, b.now); p.End(CauseError, b.now) }, 1},
		{"failed without blame and ended with an error", func(b *bed, p *Placement) { p.Fail(CauseError, BlameNone, b.now); p.End(CauseError, b.now) }, 0},
		{"ended twice", func(b *bed, p *Placement) { p.End(CauseEnd, b.now); p.End(CauseError, b.now) }, 0},
		{"failed after its end", func(b *bed, p *Placement) { p.End(CauseEnd, b.now); p.Fail(CauseError, BlameFailure, b.now) }, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			p, at := b.place(prompt(1000, nil))
			test.end(b, p)
			if got := b.view(t, at).FailedLoad; got != test.want {
				t.Errorf("FailedLoad = %v, want %v", got, test.want)
			}
		})
	}
}

// An engine that answers errors at once has no load, and must not draw every
// request for that: its failures stand for as much load as requests elsewhere.
func TestFastFailuresDrawNothing(t *testing.T) {
	const took, every, requests = 5 * time.Second, 50 * time.Millisecond, 2000
	b := newBed(3)
	b.ledger.Completed(took)
	counts := make([]int, 3)
	var live []*Placement
	for range requests {
		p, at := b.place(prompt(2000, nil))
		counts[at]++
		if at == 1 {
			p.End(CauseError, b.now)
		} else {
			p.FirstOutput(b.now)
			live = append(live, p)
		}
		b.now = b.now.Add(every)
		for len(live) > 0 && b.now.Sub(live[0].reservation.Started()) >= took {
			live[0].End(CauseEnd, b.now)
			live = live[1:]
		}
	}
	if counts[1] > requests*2/5 {
		t.Errorf("%v of %v requests went to the upstream that fails, want about its share of a third", counts[1], requests)
	}
}
