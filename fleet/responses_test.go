// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// What refers to a response goes where that is kept, whatever speaks against it
// but an attempt of the same request.
func TestResponseGoesToItsKeeper(t *testing.T) {
	const home, other = 1, 0
	get := Request{Response: 5}
	next := Request{Response: 5, Tokens: 1000, Prefills: true}
	tests := []struct {
		name    string
		before  func(b *bed)
		request Request
		usable  []int
		at      int
		reason  Reason
	}{
		{"a question", nil, get, nil, home, ReasonPinned},
		{"a continuation", nil, next, nil, home, ReasonPinned},
		{"it is loaded", func(b *bed) { b.loaded(home, 5_000_000) }, next, nil, home, ReasonPinned},
		{"it is drained", func(b *bed) { b.Drain(b.pool.Names()[home], true) }, next, nil, home, ReasonPinned},
		{"it is asleep", func(b *bed) {
			b.Observe(b.pool.Names()[home], engines.Report{Asleep: true}, b.now, time.Minute)
		}, get, nil, home, ReasonPinned},
		{"a session lives elsewhere", func(b *bed) { b.serve(turn(7, 900), other) }, Request{Response: 5, Session: 7, Tokens: 1000, Prefills: true}, nil, home, ReasonPinned},
		{"it is not usable", nil, next, []int{other, 2}, other, ReasonLoad},
		{"it was tried", nil, Request{Response: 5, Tokens: 1000, Prefills: true, Tried: []string{"vllm-1:8000"}}, []int{other, home}, other, ReasonLoad},
		{"another response", func(b *bed) { b.loaded(home, 5000); b.loaded(2, 5000) }, Request{Response: 6, Tokens: 1000, Prefills: true}, nil, other, ReasonLoad},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(3)
			made, _ := b.place(prompt(1000, nil), home)
			made.Keeps(5)
			made.End(CauseEnd, b.now)
			// ties go to the least recently chosen
			b.serve(prompt(10, nil), home)
			b.serve(prompt(10, nil), 2)
			if test.before != nil {
				test.before(b)
			}
			p, at := b.place(test.request, test.usable...)
			if at != test.at || p.Reason() != test.reason {
				t.Errorf("Place(%+v) = %d, %s, want %d, %s", test.request, at, p.Reason(), test.at, test.reason)
			}
		})
	}
}

// A question takes nothing but a place in flight.
func TestQuestionForResponseIsNoPlacement(t *testing.T) {
	b := newBed(2)
	made, _ := b.place(prompt(1000, nil), 1)
	made.Keeps(5)
	made.End(CauseEnd, b.now)
	before := b.view(t, 1).Totals
	p, _ := b.place(Request{Response: 5})
	if u := b.view(t, 1); u.Totals != before || u.Requests != 1 || u.Waiting != 0 || u.Prefill != 0 {
		t.Errorf("view = %+v, want one request more and the totals %+v", u, before)
	}
	p.End(CauseEnd, b.now)
	atRest(t, b.View(b.now))
}

// The session goes where its conversation is kept.
func TestSessionFollowsItsResponses(t *testing.T) {
	b := newBed(2)
	b.serve(turn(7, 900), 0)
	made, _ := b.place(prompt(1000, nil), 1)
	made.Keeps(5)
	made.End(CauseEnd, b.now)
	b.serve(Request{Response: 5, Session: 7, Tokens: 1000, Prefills: true})
	if u := b.view(t, 1); u.Sessions != 1 {
		t.Errorf("sessions at the keeper = %d, want 1", u.Sessions)
	}
}

func TestResponsesAreBounded(t *testing.T) {
	var table responses
	for key := ResponseKey(1); key <= maxResponses+3; key++ {
		table.note(key, "a")
		table.note(key, "b")
	}
	if n := len(table.makers); n != maxResponses || len(table.order) != maxResponses {
		t.Errorf("the table holds %d and %d, want %d", n, len(table.order), maxResponses)
	}
	for key, want := range map[ResponseKey]string{1: "", 3: "", 4: "b", maxResponses + 3: "b"} {
		if got := table.makers[key]; got != want {
			t.Errorf("maker of %d = %q, want %q", key, got, want)
		}
	}
	sorted := slices.Clone(table.order)
	slices.Sort(sorted)
	if len(slices.Compact(sorted)) != maxResponses {
		t.Error("a response is in the ring twice")
	}
}

func TestKeepsOfNothing(t *testing.T) {
	var p Placement
	p.Keeps(5)
	b := newBed(1)
	placed, _ := b.place(prompt(1000, nil))
	placed.Keeps(0)
	if n := len(b.responses.makers); n != 0 {
		t.Errorf("the table holds %d responses, want none", n)
	}
}
