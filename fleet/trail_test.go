// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// A decision says what it was made from, and what became of it.
func TestPlacements(t *testing.T) {
	b := newBed(3)
	b.List(b.pool.Names())
	warm := prompt(2560, text(1, 2560, 0, 0))
	warm.Model = strings.Repeat("m", 500)
	first, _ := b.place(warm, 1)
	b.wait(time.Second)
	first.FirstOutput(b.now)
	first.End(CauseEnd, b.now)
	b.drain(2, true)
	_, at := b.place(warm)
	b.place(Request{Tokens: 9})

	list := b.Placements(10)
	if len(list) != 2 {
		t.Fatalf("%d placements, want the two with a prompt", len(list))
	}
	last, earlier := list[0], list[1]
	if at != 1 || last.Upstream != b.pool.Names()[1] || last.Reason != ReasonPrefix || last.Ended || last.FirstOutput != 0 {
		t.Errorf("last placement = %+v, want a warm one on %s without output", last, b.pool.Names()[1])
	}
	for i, d := range b.Outlines(10) {
		want := list[i]
		want.Appraisals = nil
		if !reflect.DeepEqual(d, want) {
			t.Errorf("outline %d = %+v, want %+v", i, d, want)
		}
	}
	if len(last.Model) != longestModel {
		t.Errorf("model has %d bytes, want %d", len(last.Model), longestModel)
	}
	if earlier.FirstOutput != time.Second || !earlier.Ended || earlier.Cause != CauseEnd {
		t.Errorf("earlier placement = %+v, want a good end and output after a second", earlier)
	}
	cold, hot, drained := last.Appraisals[0], last.Appraisals[1], last.Appraisals[2]
	if !cold.Candidate || cold.Uncached != 2560 || cold.Terms.Uncached != 2560 || cold.Cost != cold.Terms.Sum() {
		t.Errorf("cold upstream = %+v, want a candidate with 2560 uncached tokens", cold)
	}
	if !hot.Candidate || hot.Cached != 2560 || hot.Cost >= cold.Cost {
		t.Errorf("warm upstream = %+v, want a candidate at a lower cost than %v", hot, cold.Cost)
	}
	if drained.Candidate || drained.Standing != "drained" || drained.Cost != 0 {
		t.Errorf("drained upstream = %+v, want no candidate", drained)
	}
	if earlier.Appraisals[0].Standing != "unavailable" {
		t.Errorf("upstream that was not usable = %+v, want it unavailable", earlier.Appraisals[0])
	}
}

// What is remembered is bounded, the newest is kept, and a pool that grows loses
// none of it.
func TestTrailBounds(t *testing.T) {
	tokens := func(list []Decision) (tokens []int) {
		for _, d := range list {
			tokens = append(tokens, d.PromptTokens)
		}
		return tokens
	}
	down := func(from, n int) (list []int) {
		for i := range n {
			list = append(list, from-i)
		}
		return list
	}
	tests := []struct{ upstreams, want int }{{1, 256}, {64, 256}, {65, 252}, {512, 32}, {20_000, 1}}
	for _, test := range tests {
		b := newBed(test.upstreams)
		for i := range 300 {
			b.serve(prompt(1+i, nil), 0)
		}
		if got, want := tokens(b.Placements(1000)), down(300, test.want); !slices.Equal(got, want) {
			t.Errorf("placements on %d upstreams = %v, want %v", test.upstreams, got, want)
		}
	}

	b := newBed(2)
	for i := range 300 {
		if i == 290 {
			b.pool, b.usable = NewPool(append(b.pool.Names(), "one more")), []int{0, 1, 2}
		}
		b.serve(prompt(1+i, nil))
	}
	list := b.Placements(1000)
	if got, want := tokens(list), down(300, 256); !slices.Equal(got, want) {
		t.Errorf("placements after the pool has grown = %v, want %v", got, want)
	}
	if n, m := len(list[0].Appraisals), len(list[255].Appraisals); n != 3 || m != 2 {
		t.Errorf("placements have %d and %d upstreams, want 3 now and 2 before", n, m)
	}
}

// The list is copied a few decisions at a time. Placements in between are not in
// it, and cost it the oldest ones alone.
func TestPlacementsInPortions(t *testing.T) {
	for _, between := range []int{0, 1, 20} {
		b := newBed(2)
		for i := range trailLength {
			b.serve(prompt(1+i, nil))
		}
		var list []Decision
		serial, portions := uint64(0), 0
		for {
			list, serial = b.portion(list, serial, decisionsAtOnce, true)
			portions++
			if serial == 0 {
				break
			}
			for range between {
				b.serve(prompt(1000, nil))
			}
		}
		for i, d := range list {
			if d.PromptTokens != trailLength-i || len(d.Appraisals) != 2 {
				t.Fatalf("placement %d with %d in between = %+v, want that of %d tokens", i, between, d, trailLength-i)
			}
		}
		// each portion but the first comes after so many
		want := map[int]int{0: 256, 1: 241, 20: 116}[between]
		if len(list) != want {
			t.Errorf("%d placements with %d in between each portion, want %d", len(list), between, want)
		}
		if least := (want + decisionsAtOnce - 1) / decisionsAtOnce; portions != least {
			t.Errorf("%d portions, want %d", portions, least)
		}
	}
	b := newBed(1)
	if list, serial := b.portion(nil, 0, decisionsAtOnce, true); len(list) != 0 || serial != 0 {
		t.Errorf("a fleet that has placed nothing has %d placements and %d to go on with", len(list), serial)
	}
}

// A request that outlives what is remembered of it completes nothing else.
func TestForgottenDecision(t *testing.T) {
	b := newBed(1)
	slow, _ := b.place(prompt(1, nil))
	for range trailLength {
		b.place(prompt(2, nil))
	}
	slow.FirstOutput(b.now.Add(time.Second))
	slow.End(CauseError, b.now)
	for _, d := range b.Placements(1000) {
		if d.PromptTokens != 2 || d.FirstOutput != 0 || d.Ended {
			t.Fatalf("placement = %+v, want it as it was", d)
		}
	}
}

func TestTrailAllocatesNothing(t *testing.T) {
	b := newBed(8)
	var p Placement
	req := prompt(2000, nil)
	req.Model = strings.Repeat("m", 500)
	b.serve(req)
	n := testing.AllocsPerRun(2*trailLength, func() {
		b.Place(&p, &req, b.pool, b.usable, &b.options, start)
		p.FirstOutput(start)
		p.End(CauseEnd, start)
	})
	if n != 0 {
		t.Errorf("a placement allocates %v times, want never", n)
	}
}
