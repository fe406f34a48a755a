// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// check verifies that the books of an engine balance.
func check(t *testing.T, e *Engine) {
	t.Helper()
	refs, pending := map[int32]int32{}, 0
	for _, r := range e.running {
		for _, b := range r.table {
			refs[b]++
		}
		if e.blocksFor(r.computed) > len(r.table) {
			t.Fatalf("%s: %d tokens in %d blocks", r.ID, r.computed, len(r.table))
		}
		pending += r.pending
	}
	for _, r := range e.waiting {
		if len(r.table) != 0 {
			t.Fatalf("%s waits and holds %d blocks", r.ID, len(r.table))
		}
		pending += r.pending
	}
	if pending != e.outstanding {
		t.Fatalf("outstanding %d, requests say %d", e.outstanding, pending)
	}
	if free := e.pool.capacity() - len(refs); e.pool.free != free {
		t.Fatalf("%d blocks free, want %d", e.pool.free, free)
	}
	queued := 0
	sentinel := int32(e.pool.capacity())
	for b := e.pool.blocks[sentinel].next; b != sentinel; b = e.pool.blocks[b].next {
		queued++
	}
	if queued != e.pool.free {
		t.Fatalf("free queue holds %d blocks, want %d", queued, e.pool.free)
	}
	for b := range int32(e.pool.capacity()) {
		blk := e.pool.blocks[b]
		if blk.refs != refs[b] {
			t.Fatalf("block %d has %d references, want %d", b, blk.refs, refs[b])
		}
		if blk.cached && e.pool.find(blk.hash, none) != b {
			t.Fatalf("block %d is cached and not found", b)
		}
	}
}

// TestRandomTraffic runs a crowded engine with shared prompts, aborts and preemptions, and checks its books each step.
func TestRandomTraffic(t *testing.T) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		e := New(Config{KVTokens: 60 * 16, BatchTokens: 200, MaxSeqs: 8})
		var live, all []*Request
		var now time.Duration
		for i := 0; i < 600 || !e.Idle(); i++ {
			if i < 600 && rnd.IntN(3) > 0 {
				full := rnd.IntN(30)
				chain := blocks(uint64(rnd.IntN(3)), full+6)
				r := &Request{
					PromptTokens: full*16 + rnd.IntN(16), Blocks: chain[:full], OutputBlocks: chain[full:],
					OutputTokens: rnd.IntN(80),
				}
				if err := e.Submit(now, r); err != nil {
					t.Fatal(err)
				}
				live, all = append(live, r), append(all, r)
			}
			if len(live) > 0 && rnd.IntN(10) == 0 {
				e.Abort(live[rnd.IntN(len(live))])
			}
			res := e.Step(now)
			now += res.Duration
			if res.PrefillTokens+res.DecodeTokens > 200 {
				t.Fatalf("step %d computed %d + %d tokens, over the budget", i, res.PrefillTokens, res.DecodeTokens)
			}
			if len(e.running) > 8 {
				t.Fatalf("step %d runs %d requests", i, len(e.running))
			}
			check(t, e)
			if i > 100_000 {
				t.Fatal("engine does not become idle")
			}
		}
		finished := int64(0)
		for _, r := range all {
			switch {
			case r.State == Finished && r.Generated == r.OutputTokens && r.FirstOutput > r.Submitted:
				finished++
			case r.State != Aborted:
				t.Fatalf("request ends %+v", r)
			}
		}
		s := e.Stats()
		if s.Finished != finished || s.Preemptions == 0 || s.PrefixHits == 0 || e.outstanding != 0 {
			t.Errorf("seed %d: Stats() = %+v with %d finished, want preemptions and hits", seed, s, finished)
		}
	}
}
