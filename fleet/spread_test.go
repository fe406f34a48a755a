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

// Users of one application share its instructions. That is no reason to send
// them all to the upstream that saw the first of them.
func TestSharedInstructionsUseEveryUpstream(t *testing.T) {
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

// Waiting behind twelve others takes longer than reading the document again.
func TestHotDocumentLeavesItsHolder(t *testing.T) {
	b := newBed(3)
	b.serve(prompt(16_384, text(1, 16_384, 0, 0)), 0)
	b.waiting(0, 12, 16_384, 500)
	if _, at := b.place(prompt(16_384+500, text(1, 16_384, 7, 500))); at == 0 {
		t.Error("the next question about a hot document queued behind twelve others")
	}
}

// Losing all affinity when one holder is overloaded is as bad as keeping it: the
// other holder is there.
func TestOverloadedHolderLosesToTheOther(t *testing.T) {
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
