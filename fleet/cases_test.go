// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/sessions"
)

// The tests of this file and of cases_marks_test.go are cases of docs/cases.md:
// what went wrong in other routers, decided here in virtual time.

// steady places a request every 50 ms, of which each shows its output after four
// more were placed and ends after inFlight more, and returns where they went.
func (b *bed) steady(requests, inFlight int, request func(i int) Request) []int {
	counts := make([]int, len(b.usable))
	var live []*Placement
	for i := range requests {
		p, at := b.place(request(i))
		counts[at]++
		live = append(live, p)
		if i >= 4 {
			live[max(len(live)-5, 0)].FirstOutput(b.now)
		}
		if len(live) > inFlight {
			live[0].End(CauseEnd, b.now)
			live = live[1:]
		}
		b.now = b.now.Add(50 * time.Millisecond)
	}
	return counts
}

// A round robin that all models share skips: with two models in strict turns,
// one upstream of the first model got every request for it.
func TestCaseC11InterleavedModelsSplitEvenly(t *testing.T) {
	b := known(3)
	b.lists(0, "a")
	b.lists(1, "a")
	b.lists(2, "b")
	var counts [3]int
	for i := range 40 {
		req := prompt(1000, nil)
		req.Model = []string{"a", "b"}[i%2]
		counts[b.serve(req)]++
	}
	if want := [3]int{10, 10, 20}; counts != want {
		t.Errorf("20 requests for each of two models went %v, want %v", counts, want)
	}
}

// A prompt that nobody has cached went to the upstream that has cached least,
// however long its queue was.
func TestCaseC14UniquePromptsLeaveTheDeepestQueue(t *testing.T) {
	b := newBed(3)
	for i := range uint64(40) {
		b.serve(prompt(4096, text(0, 0, 100+i, 4096)), 1+int(i)%2)
	}
	for range 12 {
		b.loaded(0, 2000)
	}
	b.loaded(1, 2000)
	if blocks := b.view(t, 0).PrefixBlocks; blocks != 0 {
		t.Fatalf("the upstream with the deepest queue has %d blocks, want none", blocks)
	}
	for i := range uint64(50) {
		tokens := 256 << (i % 6)
		if at := b.serve(prompt(tokens, text(0, 0, 1000+i, tokens))); at == 0 {
			t.Errorf("a unique prompt of %d tokens went to the deepest queue", tokens)
		}
	}
}

// Cache-aware routing was slower than a round robin where prompts share a
// quarter. Then it must spread them as a round robin does.
func TestCaseC19SmallSharedPrefixSpreadsLikeRoundRobin(t *testing.T) {
	const requests, upstreams = 400, 4
	for _, inFlight := range []int{8, 16, 64} {
		b := newBed(upstreams)
		counts := b.steady(requests, inFlight, func(i int) Request {
			return prompt(4096, text(1, 1024, uint64(i+1), 3072))
		})
		for _, n := range counts {
			if n < requests/upstreams-4 || n > requests/upstreams+4 {
				t.Errorf("with %d in flight %d requests went %v, want about %d each", inFlight, requests, counts, requests/upstreams)
				break
			}
		}
	}
}

// A router was killed for its memory fourteen times, for it kept something of
// every request. What is kept here has bounds.
func TestCaseC22MemoryStaysFlat(t *testing.T) {
	b := newBed(3)
	b.options.KVTokens = 100 * BlockTokens
	b.options.Sessions.Max = 100
	ends := []func(p *Placement){
		func(p *Placement) { p.FirstOutput(b.now); p.End(CauseEnd, b.now) },
		func(p *Placement) { p.End(CauseError, b.now) },
		func(p *Placement) { p.End(CauseCanceled, b.now) },
		func(p *Placement) { p.Fail(CauseRetried, BlameFailure, b.now); p.End(CauseRetried, b.now) },
		func(p *Placement) { p.FirstOutput(b.now); p.End(CauseError, b.now) },
	}
	n := 0
	heap := func(requests int) uint64 {
		for range requests {
			n++
			p, _ := b.place(Request{
				Session: sessions.Key(n), Model: string(rune(n % 5000)), Tokens: 1024,
				Blocks: text(0, 0, uint64(n), 1024), Prefills: true, Watched: true,
			})
			ends[n%len(ends)](p)
			b.now = b.now.Add(time.Millisecond)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap(10_000)
	if after := heap(20_000); after > before+256<<10 {
		t.Errorf("20,000 more requests grew the heap from %d to %d bytes", before, after)
	}
	atRest(t, b.View(b.now))
}

// At low load all requests ran on the one node that knew their common prefix.
// Every node is to run one before any runs two.
func TestCaseD20LowLoadUsesEveryUpstream(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for _, shared := range []int{256, 512, 1024, 4096} {
			b := newBed(n)
			b.serve(prompt(shared, text(1, shared, 0, 0)))
			counts := make([]int, n)
			for i := range n {
				p, at := b.place(prompt(shared+300, text(1, shared, uint64(i+1), 300)))
				counts[at]++
				p.FirstOutput(b.now)
				b.now = b.now.Add(time.Second)
			}
			if slices.Max(counts) > 1 {
				t.Errorf("%d running requests with %d tokens in common went %v, want one each", n, shared, counts)
			}
		}
	}
}

// An engine in the middle of long answers completes nothing, was taken for idle
// by the rate of what it completes, and kept the sessions that came for that.
func TestCaseD32StuckEngineIsNotIdle(t *testing.T) {
	b := newBed(2)
	for range 4 {
		long, _ := b.place(prompt(1000, nil), 0)
		long.FirstOutput(b.now)
	}
	for range 50 {
		b.serve(prompt(1000, nil), 1)
		b.now = b.now.Add(100 * time.Millisecond)
	}
	for i := range 10 {
		key := sessions.Key(i + 1)
		if at := b.serve(turn(key, 500)); at != 1 {
			t.Errorf("session %d began at the engine that completes nothing", i)
		}
		if p, at := b.place(turn(key, 600), 0, 1); at != 1 || p.Reason() != ReasonPinned {
			t.Errorf("session %d went on at %d, %v, want 1, pinned", i, at, p.Reason())
		} else {
			p.End(CauseEnd, b.now)
		}
	}
}

// The first of those that tie got every session, and sessions made that last.
// The one that was chosen longest ago is next, whoever else may be chosen.
func TestCaseD34TiesGoToTheLeastRecentlyChosen(t *testing.T) {
	b := newBed(4)
	chosen := []int{0, 0, 0, 0} // when each was chosen last
	sets := [][]int{{0, 1, 2, 3}, {1, 3}, {0, 2, 3}, {0, 1, 2, 3}, {2, 1}, {0, 1, 2, 3}, {3, 2, 0}}
	for i := range 70 {
		usable := sets[i%len(sets)]
		at := b.serve(turn(sessions.Key(i+1), 1000), usable...)
		for _, other := range usable {
			if chosen[other] < chosen[at] {
				t.Errorf("request %d among %v went to %d, which was chosen after %d", i, usable, at, other)
			}
		}
		chosen[at] = i + 1
	}
}

// A balancer that scores requests takes one prompt of 10,000 tokens for lighter
// than two of 1,000.
func TestCaseD35TokensWeighMoreThanRequests(t *testing.T) {
	b := newBed(2)
	b.loaded(0, 10_000)
	b.loaded(1, 1000)
	b.loaded(1, 1000)
	if _, at := b.place(prompt(1000, nil)); at != 1 {
		t.Errorf("placed behind one prompt of 10,000 tokens, want behind two of 1,000")
	}
}
