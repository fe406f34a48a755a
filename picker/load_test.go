// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"testing"
	"time"
)

// What other routers hold counts in the cost as what this one does.
func TestPeersCountInTheCost(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLedger(func() uint64 { return 1 })
	own, theirs, idle := l.NewUpstream("own"), l.NewUpstream("theirs"), l.NewUpstream("idle")
	var open [3]Reservation
	for i := range open {
		l.Open(&open[i], own, Claim{Tokens: 1000, Prefills: true}, now)
	}
	theirs.SetPeers(Load{Requests: 3, Prompts: 3, Waiting: 3, Prefill: 3000})
	candidates := []Candidate{
		{Upstream: own, Uncached: 500, Age: NeverEvicts},
		{Upstream: theirs, Uncached: 500, Age: NeverEvicts},
		{Upstream: idle, Uncached: 100, Age: NeverEvicts},
	}
	w := DefaultWeights()
	w.Score(candidates, now)
	if candidates[0].Terms != candidates[1].Terms || candidates[0].Terms.Delay == 0 {
		t.Errorf("terms are %+v with what is our own and %+v with theirs, want the same", candidates[0].Terms, candidates[1].Terms)
	}
	if !theirs.Idle() || theirs.Requests() != 0 {
		t.Errorf("%d requests are our own, want none", theirs.Requests())
	}

	// who waits behind theirs waits for those too
	var r Reservation
	l.Open(&r, theirs, Claim{Tokens: 10, Prefills: true}, now)
	if got := theirs.Ahead(); got != 3010 {
		t.Errorf("Ahead() = %v, want 3010", got)
	}
}

func TestTakePeersPeak(t *testing.T) {
	u := NewLedger(func() uint64 { return 1 }).NewUpstream("a")
	for _, n := range []int{2, 7, 3} {
		u.SetPeers(Load{Requests: n})
	}
	for i, want := range []int{7, 3, 3} {
		if got := u.TakePeersPeak(); got != want {
			t.Errorf("look %d: TakePeersPeak() = %v, want %v", i, got, want)
		}
	}
}

// A request that another router has placed decides ties, and is not told as our
// own.
func TestAssign(t *testing.T) {
	now := time.Unix(1000, 0)
	l := NewLedger(func() uint64 { return 1 })
	a, b := l.NewUpstream("a"), l.NewUpstream("b")
	candidates := []Candidate{{Upstream: a}, {Upstream: b}}
	var r Reservation
	l.Open(&r, a, Claim{Prefills: true}, now)
	l.Close(&r)
	if Pick(candidates, true) != 1 {
		t.Error("the tie went to the upstream that was chosen last")
	}
	l.Assign(b)
	if Pick(candidates, true) != 0 {
		t.Error("the tie went to the upstream that another router has chosen last")
	}
	if a.Assigned() == 0 || b.Assigned() != 0 {
		t.Errorf("Assigned() = %v, %v, want none for b", a.Assigned(), b.Assigned())
	}
}
