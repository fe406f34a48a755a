// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// step is one row of a story. It happens after seconds from the start of the
// story, and want says what is held afterwards.
type step struct {
	name  string
	after int
	do    string
	key   Key
	home  string

	// full says that Begin returns nil
	full bool

	// fresh says that Begin returns a session without a home
	fresh bool

	// want lists the keys that are held
	want []Key
}

func TestStories(t *testing.T) {
	bounds := Bounds{Max: 3, TTL: 60 * time.Second}
	stories := []struct {
		name  string
		steps []step
	}{
		{"pin", []step{
			{name: "first request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "gets a home", do: "move", key: 1, home: "a", want: []Key{1}},
			{name: "ends", after: 1, do: "end", key: 1, want: []Key{1}},
			{name: "second request finds it", after: 2, do: "begin", key: 1, home: "a", want: []Key{1}},
			{name: "moves", after: 2, do: "move", key: 1, home: "b", want: []Key{1}},
			{name: "ends", after: 3, do: "end", key: 1, want: []Key{1}},
			{name: "third request finds the new home", after: 4, do: "begin", key: 1, home: "b", want: []Key{1}},
		}},
		{"without a home nothing is kept", []step{
			{name: "first request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "ends", do: "end", key: 1},
			{name: "with a sibling", do: "begin", key: 2, fresh: true, want: []Key{2}},
			{name: "the sibling", do: "begin", key: 2, fresh: true, want: []Key{2}},
			{name: "one ends", do: "end", key: 2, want: []Key{2}},
			{name: "the other ends", do: "end", key: 2},
		}},
		{"a home taken back is none", []step{
			{name: "request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "home", do: "move", key: 1, home: "a", want: []Key{1}},
			{name: "taken back", do: "move", key: 1, home: "", want: []Key{1}},
			{name: "ends", do: "end", key: 1},
		}},
		{"expire", []step{
			{name: "request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "home", do: "move", key: 1, home: "a", want: []Key{1}},
			{name: "ends", after: 10, do: "end", key: 1, want: []Key{1}},
			{name: "at the TTL it is there", after: 70, do: "begin", key: 1, home: "a", want: []Key{1}},
			{name: "ends", after: 70, do: "end", key: 1, want: []Key{1}},
			{name: "past the TTL it is new", after: 131, do: "begin", key: 1, fresh: true, want: []Key{1}},
		}},
		{"another request drops what expired", []step{
			{name: "request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "home", do: "move", key: 1, home: "a", want: []Key{1}},
			{name: "ends", do: "end", key: 1, want: []Key{1}},
			{name: "another session", after: 61, do: "begin", key: 2, fresh: true, want: []Key{2}},
		}},
		{"live keeps alive", []step{
			{name: "request", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "home", do: "move", key: 1, home: "a", want: []Key{1}},
			{name: "another session much later", after: 1000, do: "begin", key: 2, fresh: true, want: []Key{1, 2}},
			{name: "sibling much later", after: 1000, do: "begin", key: 1, home: "a", want: []Key{1, 2}},
			{name: "one ends", after: 2000, do: "end", key: 1, want: []Key{1, 2}},
			{name: "still live", after: 3000, do: "begin", key: 3, fresh: true, want: []Key{1, 2, 3}},
			{name: "the other ends", after: 4000, do: "end", key: 1, want: []Key{1, 2, 3}},
			{name: "idle since then", after: 4060, do: "begin", key: 1, home: "a", want: []Key{1, 2, 3}},
		}},
		{"the least recently used goes", []step{
			{name: "1", do: "visit", key: 1, home: "a", want: []Key{1}},
			{name: "2", after: 1, do: "visit", key: 2, home: "a", want: []Key{1, 2}},
			{name: "3", after: 2, do: "visit", key: 3, home: "a", want: []Key{1, 2, 3}},
			{name: "1 is used", after: 3, do: "visit", key: 1, home: "a", want: []Key{1, 2, 3}},
			{name: "4 comes, 2 goes", after: 4, do: "visit", key: 4, home: "a", want: []Key{1, 3, 4}},
			{name: "5 comes, 3 goes", after: 5, do: "visit", key: 5, home: "a", want: []Key{1, 4, 5}},
		}},
		{"a live one stays though it is the oldest", []step{
			{name: "1 is live", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "2", after: 1, do: "visit", key: 2, home: "a", want: []Key{1, 2}},
			{name: "3", after: 2, do: "visit", key: 3, home: "a", want: []Key{1, 2, 3}},
			{name: "4 comes, 2 goes", after: 3, do: "visit", key: 4, home: "a", want: []Key{1, 3, 4}},
		}},
		{"full of live ones", []step{
			{name: "1", do: "begin", key: 1, fresh: true, want: []Key{1}},
			{name: "2", do: "begin", key: 2, fresh: true, want: []Key{1, 2}},
			{name: "3", do: "begin", key: 3, fresh: true, want: []Key{1, 2, 3}},
			{name: "4 is refused", do: "begin", key: 4, full: true, want: []Key{1, 2, 3}},
			{name: "a sibling is not", do: "begin", key: 3, fresh: true, want: []Key{1, 2, 3}},
			{name: "1 gets a home", do: "move", key: 1, home: "a", want: []Key{1, 2, 3}},
			{name: "1 ends", do: "end", key: 1, want: []Key{1, 2, 3}},
			{name: "4 takes its place", do: "begin", key: 4, fresh: true, want: []Key{2, 3, 4}},
		}},
		{"clear with live ones", []step{
			{name: "1 idle", do: "visit", key: 1, home: "a", want: []Key{1}},
			{name: "2 live", do: "begin", key: 2, fresh: true, want: []Key{1, 2}},
			{name: "2 at home", do: "move", key: 2, home: "a", want: []Key{1, 2}},
			{name: "cleared", do: "clear"},
			{name: "2 again is another", do: "begin", key: 2, fresh: true, want: []Key{2}},
			{name: "at another home", do: "move", key: 2, home: "b", want: []Key{2}},
			{name: "the old one moves", do: "move old", key: 2, home: "c", want: []Key{2}},
			{name: "the old one ends", do: "end old", key: 2, want: []Key{2}},
			{name: "the new one ends", do: "end", key: 2, want: []Key{2}},
			{name: "the new one is found", do: "begin", key: 2, home: "b", want: []Key{2}},
		}},
	}
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			var table Table
			now, old := map[Key]*Session{}, map[Key]*Session{}
			for _, s := range story.steps {
				at := start.Add(time.Duration(s.after) * time.Second)
				switch s.do {
				case "begin", "visit":
					session := table.Begin(s.key, at, bounds)
					if (session == nil) != s.full {
						t.Fatalf("%s: Begin(%v) = %v, want nil: %v", s.name, s.key, session, s.full)
					}
					if session == nil {
						break
					}
					now[s.key] = session
					if s.do == "visit" {
						table.MoveTo(session, s.home)
						table.End(session, at)
					} else if session.Home() != s.home || s.fresh != (s.home == "") {
						t.Errorf("%s: Begin(%v) has home %q, want %q", s.name, s.key, session.Home(), s.home)
					}
				case "move":
					table.MoveTo(now[s.key], s.home)
				case "move old":
					table.MoveTo(old[s.key], s.home)
				case "end":
					table.End(now[s.key], at)
				case "end old":
					table.End(old[s.key], at)
				case "clear":
					table.Clear()
					old, now = now, map[Key]*Session{}
				}
				if table.Len() != len(s.want) {
					t.Errorf("%s: Len() = %v, want %v", s.name, table.Len(), len(s.want))
				}
				for _, key := range s.want {
					if table.Find(key) == nil {
						t.Errorf("%s: Find(%v) = nil, want a session", s.name, key)
					}
				}
				recount(t, s.name, &table)
			}
		})
	}
}

// recount compares what a table counts with what it holds, and its list with
// the sessions that have no live request.
func recount(t *testing.T, when string, table *Table) {
	t.Helper()
	homes, idle, held := map[string]int{}, 0, 0
	for s := range table.All() {
		held++
		if s.Home() != "" {
			homes[s.Home()]++
		}
		if s.Live() == 0 {
			idle++
		}
	}
	if held != table.Len() {
		t.Errorf("%s: All() ranges over %v sessions, want %v", when, held, table.Len())
	}
	if len(homes) != len(table.homes) {
		t.Errorf("%s: homes = %v, want %v", when, table.homes, homes)
	}
	for home, want := range homes {
		if got := table.HomeOf(home); got != want {
			t.Errorf("%s: HomeOf(%q) = %v, want %v", when, home, got, want)
		}
	}
	listed := 0
	for s := table.oldest; s != nil; s = s.newer {
		listed++
		if s.newer != nil && s.newer.lastUse.Before(s.lastUse) {
			t.Errorf("%s: a session used at %v is listed before one used at %v", when, s.lastUse, s.newer.lastUse)
		}
	}
	if listed != idle {
		t.Errorf("%s: %v sessions are listed, want %v without a live request", when, listed, idle)
	}
}

func TestCountsEqualRecounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var table Table
	var live []*Session
	bounds := Bounds{Max: 12, TTL: 20 * time.Second}
	now := start
	for i := range 5000 {
		now = now.Add(time.Duration(r.IntN(2000)) * time.Millisecond)
		switch what := r.IntN(100); {
		case what < 45:
			key := Key(1 + r.IntN(30))
			full := table.Find(key) == nil && liveIn(&table) >= bounds.Max
			s := table.Begin(key, now, bounds)
			if (s == nil) != full {
				t.Fatalf("Begin(%v) = %v, want nil: %v", key, s, full)
			}
			if s != nil {
				live = append(live, s)
			}
		case what < 70 && len(live) > 0:
			s := live[r.IntN(len(live))]
			home := []string{"", "a", "b", "c"}[r.IntN(4)]
			before, moves := s.Home(), s.Moves()
			if got := table.MoveTo(s, home); got != before || s.Home() != home || s.Moves() != moves+1 {
				t.Fatalf("MoveTo(%q) = %q, want %q", home, got, before)
			}
		case what < 99 && len(live) > 0:
			at := r.IntN(len(live))
			table.End(live[at], now)
			live[at] = live[len(live)-1]
			live = live[:len(live)-1]
		case what == 99:
			table.Clear()
		}
		if table.Len() > bounds.Max {
			t.Fatalf("Len() = %v, want at most %v", table.Len(), bounds.Max)
		}
		if recount(t, fmt.Sprintf("step %d", i), &table); t.Failed() {
			return
		}
	}
}

func liveIn(table *Table) (live int) {
	for s := range table.All() {
		if s.Live() > 0 {
			live++
		}
	}
	return live
}

// A thousand sessions that expire together must not all be dropped by the
// placement that comes next, but none of them may be found either.
func TestExpiryIsSpread(t *testing.T) {
	var table Table
	b := Bounds{Max: 2000, TTL: time.Minute}
	for key := Key(1); key <= 1000; key++ {
		s := table.Begin(key, start, b)
		table.MoveTo(s, "a")
		table.End(s, start)
	}
	later := start.Add(time.Hour)
	if s := table.Begin(999, later, b); s.Home() != "" {
		t.Errorf("Begin() of an expired session has home %q, want none", s.Home())
	}
	if got := table.Len(); got < 900 || got >= 1000 {
		t.Errorf("Len() after one Begin() = %v, want a little under 1000", got)
	}
	for range 100 {
		table.Begin(999, later, b)
	}
	if got := table.Len(); got != 1 {
		t.Errorf("Len() after a hundred = %v, want 1", got)
	}
	recount(t, "in the end", &table)
}

func TestBoundsShrink(t *testing.T) {
	var table Table
	for key := Key(1); key <= 10; key++ {
		s := table.Begin(key, start, Bounds{Max: 10, TTL: time.Hour})
		table.MoveTo(s, "a")
		table.End(s, start)
	}
	tests := []struct {
		name string
		max  int
		key  Key
		full bool
		want int
	}{
		{"a session that is held stays", 5, 10, false, 10},
		{"a new one makes room", 5, 11, false, 5},
		{"none at all", 0, 12, true, 2},
		{"less than none", -1, 13, true, 2},
	}
	for _, test := range tests {
		s := table.Begin(test.key, start, Bounds{Max: test.max, TTL: time.Hour})
		if (s == nil) != test.full || table.Len() != test.want {
			t.Errorf("%s: Begin() with Max %v = %v and holds %v, want nil: %v and %v", test.name, test.max, s, table.Len(), test.full, test.want)
		}
		recount(t, test.name, &table)
	}
}

func TestZeroTable(t *testing.T) {
	var table Table
	table.Clear()
	if table.Len() != 0 || table.Find(1) != nil || table.HomeOf("a") != 0 || table.HomeOf("") != 0 {
		t.Errorf("the zero table holds something, want nothing")
	}
}
