// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "testing"

// One agent's life under one session name: what is charged is what is uncached
// at the prompt's own prefix, and only turns of the conversation itself bind
// the session.
func TestAgentWithSubAgents(t *testing.T) {
	const parent, child = 11, 22 // heads: the tools and instructions of each
	turnOf := func(head, tokens int, blocks []uint64) Request {
		return Request{Session: 7, Head: uint64(head), Tokens: tokens, Blocks: blocks, Prefills: true}
	}
	b := newBed(2)
	steps := []struct {
		name    string
		request Request
		usable  []int
		at      int // -1 for any
		reason  Reason
		want    int // uncached tokens
	}{
		{"first turn", turnOf(parent, 8192, text(1, 8192, 0, 0)), []int{0}, 0, ReasonNew, 8192},
		{"second turn", turnOf(parent, 10_240, text(1, 8192, 2, 2048)), nil, 0, ReasonPinned, 2048},
		{"a sub-agent has its own prompt", turnOf(child, 4096, text(3, 4096, 0, 0)), []int{1}, 1, ReasonLoad, 4096},
		{"the sub-agent's next turn follows its own cache", turnOf(child, 6144, text(3, 4096, 4, 2048)), nil, 1, ReasonPrefix, 2048},
		{"the parent goes on at its home", turnOf(parent, 10_240, text(1, 8192, 2, 2048)), nil, 0, ReasonPinned, 0},
		{"a spill counts all of it where it is cold", turnOf(parent, 10_240, text(1, 8192, 2, 2048)), []int{1}, 1, ReasonMovedUnavailable, 10_240},
		{"a return counts what the old home has not seen", turnOf(parent, 12_288, text(1, 8192, 2, 4096)), []int{0}, 0, ReasonMovedUnavailable, 2048},
		{"a compaction keeps the instructions", turnOf(parent, 5120, text(1, 4096, 5, 1024)), nil, 0, ReasonPinned, 1024},
		{"and is what the next turn extends", turnOf(parent, 6144, text(1, 4096, 5, 2048)), nil, 0, ReasonPinned, 1024},
	}
	for _, step := range steps {
		usable := step.usable
		if usable == nil {
			usable = []int{0, 1}
		}
		p, at := b.place(step.request, usable...)
		if at != step.at || p.Reason() != step.reason || p.UncachedTokens() != step.want {
			t.Errorf("%s: placed at %d, %v, %d uncached; want %d, %v, %d",
				step.name, at, p.Reason(), p.UncachedTokens(), step.at, step.reason, step.want)
		}
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
}

// A cache key of an application is the name of all its conversations. It binds
// the one whose prompt it saw first, and no other.
func TestSharedNames(t *testing.T) {
	b := newBed(2)
	request := func(tokens int, blocks []uint64) Request {
		return Request{Session: 9, Shared: true, Head: 1, Tokens: tokens, Blocks: blocks, Prefills: true}
	}
	steps := []struct {
		name    string
		request Request
		reason  Reason
	}{
		{"first conversation", request(2048, text(0, 0, 1, 2048)), ReasonNew},
		{"another one with the same instructions", request(2048, text(0, 0, 2, 2048)), ReasonLoad},
		{"the first goes on", request(4096, text(0, 0, 1, 4096)), ReasonPinned},
		{"a prompt too short to have a block", request(20, nil), ReasonLoad},
	}
	for _, step := range steps {
		p, _ := b.place(step.request)
		if p.Reason() != step.reason {
			t.Errorf("%s: reason = %v, want %v", step.name, p.Reason(), step.reason)
		}
		p.FirstOutput(b.now)
		p.End(CauseEnd, b.now)
	}
}

// Until the first request under a shared name has succeeded, nothing can
// extend it: a burst of an application's requests must not be one session.
func TestBurstUnderASharedName(t *testing.T) {
	b := newBed(3)
	counts := make([]int, 3)
	for i := range 30 {
		_, at := b.place(Request{
			Session: 9, Shared: true, Head: 1, Tokens: 2048, Prefills: true,
			Blocks: text(0, 0, uint64(i+1), 2048),
		})
		counts[at]++
	}
	if s := sorted(counts); s[0] != 10 || s[2] != 10 {
		t.Errorf("30 requests under a shared name went %v, want 10 each", counts)
	}
}
