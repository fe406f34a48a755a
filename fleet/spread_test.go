// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"
)

// waiting puts n requests on an upstream that have shown no output, each with
// some tokens of its own after a prompt that is cached there.
func (b *bed) waiting(at, n, shared, own int) {
	for i := range n {
		b.place(prompt(shared+own, text(1, shared, uint64(1000+i), own)), at)
	}
}

// Users of one application share its instructions, and one backend got all of them
// for having seen the first.
func TestCaseC12SharedInstructionsUseEveryUpstream(t *testing.T) {
	for _, n := range []int{2, 3, 4, 8} {
		b := newBed(n)
		counts := make([]int, n)
		for i := range 30 {
			_, at := b.place(prompt(4096+300, text(1, 4096, uint64(i+1), 300)))
			counts[at]++
		}
		if slices.Contains(counts, 0) {
			t.Errorf("30 users on %d upstreams went %v, want every upstream used", n, counts)
		}
	}
}

// Requests over a hot prefix queued where it is cached while the others were idle.
//
// Waiting behind twelve others takes longer than reading the document again.
func TestCaseC2HotPrefixLeavesItsHolder(t *testing.T) {
	b := newBed(3)
	b.serve(prompt(16_384, text(1, 16_384, 0, 0)), 0)
	b.waiting(0, 12, 16_384, 500)
	if _, at := b.place(prompt(16_384+500, text(1, 16_384, 7, 500))); at == 0 {
		t.Error("the next question about a hot document queued behind twelve others")
	}
}

// With any imbalance a router gave all affinity up, and the hit rate fell with it.
//
// Losing all affinity when one holder is overloaded is as bad as keeping it: the
// other holder is there.
func TestCaseC15WarmAndIdleBeatsCold(t *testing.T) {
	b := newBed(3)
	const overloaded, warm = 0, 1
	for _, at := range []int{overloaded, warm} {
		b.serve(prompt(16_384, text(1, 16_384, 0, 0)), at)
	}
	b.waiting(overloaded, 20, 16_384, 2000)
	b.waiting(warm, 1, 16_384, 500)
	if _, at := b.place(prompt(16_384+500, text(1, 16_384, 7, 500))); at != warm {
		t.Errorf("placed at %d, want the near-idle holder %d", at, warm)
	}
}

// Claude Code counts tokens before each message. Neither kind of request may
// decide where the other goes.
func TestCallsInBetweenDoNotDecideTies(t *testing.T) {
	for _, n := range []int{2, 4} {
		b := newBed(n)
		prompts, calls := make([]int, n), make([]int, n)
		for i := range 100 {
			calls[b.serve(Request{Tokens: 2000})]++
			prompts[b.serve(prompt(2000, text(0, 0, uint64(i+1), 2000)))]++
		}
		for _, counts := range [][]int{prompts, calls} {
			if s := sorted(counts); s[n-1]-s[0] > 1 {
				t.Errorf("100 of each kind on %d upstreams: prompts %v, calls %v, want each even", n, prompts, calls)
			}
		}
	}
}

// A client that drops its oldest messages and has no instructions sends a prompt
// that continues nothing. Its session must find a home again all the same.
func TestSessionIsBoundAgain(t *testing.T) {
	sliding := func(i int) Request {
		return Request{Session: 7, Tokens: 2048, Blocks: text(0, 0, uint64(i+1), 2048), Prefills: true}
	}
	b := newBed(2)
	b.serve(sliding(0))
	for i := range strangers {
		b.serve(sliding(i + 1))
	}
	if p, _ := b.place(Request{Session: 7, Tokens: 4096, Blocks: text(0, 0, strangers+1, 4096), Prefills: true}); p.Reason() != ReasonPinned {
		t.Errorf("reason = %v, want pinned", p.Reason())
	}

	// without the index there is nothing but the name to go by
	b = newBed(2)
	b.options.PrefixIndex = false
	b.serve(sliding(0))
	if p, _ := b.place(sliding(1)); p.Reason() != ReasonPinned {
		t.Errorf("reason without the index = %v, want pinned", p.Reason())
	}
}

// What goes on with a response that its upstream keeps has a prompt of its own,
// which continues nothing, and nowhere else to go.
func TestContinuedResponseStaysAtHome(t *testing.T) {
	part := func(i int) Request {
		return Request{Session: 7, Tokens: 2048, Blocks: text(0, 0, uint64(i+1), 2048), Prefills: true, Continues: i > 0}
	}
	b := newBed(3)
	home := b.serve(part(0))
	for i := range 5 {
		if at := b.serve(part(i + 1)); at != home {
			t.Fatalf("request %d placed at %d, want %d", i+1, at, home)
		}
	}
	b.options.Stickiness = 0
	_, other := b.place(prompt(200_000, text(0, 0, 99, 200_000)))
	for other != home {
		_, other = b.place(prompt(200_000, text(0, 0, uint64(other)+100, 200_000)))
	}
	if p, at := b.place(part(9)); at != home || p.Reason() != ReasonPinned {
		t.Errorf("placed at %d, %v, want %d while that is busy, pinned", at, p.Reason(), home)
	}
}
