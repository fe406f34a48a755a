// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// An operator sees what is drained for as long as that holds.
func TestViewShowsDrained(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := New(func() uint64 { return 1 })
	f.List([]string{"a", "b", "c"})
	f.Drain("a", true)
	f.Unlist([]string{"a", "b"})
	shown := func() (names, states []string) {
		for _, u := range f.View(now).Upstreams {
			names, states = append(names, u.Name), append(states, u.State)
		}
		return names, states
	}
	names, states := shown()
	if !slices.Equal(names, []string{"a", "c"}) || !slices.Equal(states, []string{"drained", "available"}) {
		t.Errorf("upstreams in view = %v, %v, want a drained and c available", names, states)
	}
	f.Drain("a", false)
	if names, _ := shown(); !slices.Equal(names, []string{"c"}) {
		t.Errorf("upstreams in view = %v, want c", names)
	}
}

// Every state that a view may have is in the list, and nothing else.
func TestStates(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := New(func() uint64 { return 1 })
	f.List([]string{"available", "full", "asleep", "drained", "cooling_down", "suspect"})
	f.Observe("full", engines.Report{KVUsage: engines.Known(1)}, now, time.Minute)
	f.Observe("asleep", engines.Report{Asleep: true}, now, time.Minute)
	f.Drain("drained", true)
	place := func(name string, now time.Time) *Placement {
		p, o := new(Placement), DefaultOptions()
		f.Place(p, &Request{Tokens: 1000, Prefills: true, Watched: true}, NewPool([]string{name}), []int{0}, &o, now)
		return p
	}
	place("suspect", now.Add(-time.Minute))
	for range 2 {
		place("cooling_down", now).End(CauseError, now)
	}
	var seen []string
	for _, u := range f.View(now).Upstreams {
		if u.State != u.Name {
			t.Errorf("state of %s = %s", u.Name, u.State)
		}
		seen = append(seen, u.State)
	}
	states := slices.Sorted(slices.Values(States()))
	if !slices.Equal(seen, states) {
		t.Errorf("states = %v, want those seen, %v", states, seen)
	}
}

// An engine that lists no model is not one whose models are not known.
func TestViewModels(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	f := New(func() uint64 { return 1 })
	f.List([]string{"a", "b", "c", "d"})
	f.ObserveModels("a", []engines.Model{{ID: "m"}, {ID: "k"}}, now, time.Minute)
	f.ObserveModels("b", nil, now, time.Minute)
	f.ObserveModels("c", nil, now.Add(-time.Hour), time.Minute)
	for i, want := range [][]string{{"k", "m"}, {}, nil, nil} {
		u := f.View(now).Upstreams[i]
		if !slices.Equal(u.Models, want) || (u.Models == nil) != (want == nil) {
			t.Errorf("models of %s = %#v, want %#v", u.Name, u.Models, want)
		}
	}
}
