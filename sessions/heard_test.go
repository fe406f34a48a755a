// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import (
	"testing"
	"time"
)

func TestVersionsAreInOneOrder(t *testing.T) {
	// each counts, and those after it do not
	order := []Version{{3, 9}, {2, 1}, {2, 5}, {1, 0}, {0, 0}}
	for i, v := range order {
		for j, w := range order {
			want := 0
			if i < j {
				want = 1
			} else if i > j {
				want = -1
			}
			if got := v.Compare(w); got != want {
				t.Errorf("%v.Compare(%v) = %v, want %v", v, w, got, want)
			}
		}
	}
}

// What is heard of a session keeps it, as a request would, and nothing else.
func TestMeet(t *testing.T) {
	b := Bounds{Max: 2, TTL: time.Minute}
	var table Table
	s := table.Meet(1, start, b)
	table.MoveTo(s, "a")
	if s.Live() != 0 || table.HomeOf("a") != 1 || s.Key() != 1 {
		t.Errorf("session 1 has %d live requests, %d sessions are at home", s.Live(), table.HomeOf("a"))
	}
	if again := table.Meet(1, start.Add(40*time.Second), b); again != s {
		t.Error("session 1 is another one after 40 s")
	}
	if again := table.Meet(1, start.Add(90*time.Second), b); again != s {
		t.Error("session 1 is another one 50 s after it was heard of")
	}
	if again := table.Meet(1, start.Add(151*time.Second), b); again == s || again.Home() != "" {
		t.Error("session 1 is there after its TTL")
	}

	now := start.Add(10 * time.Minute)
	live := table.Begin(2, now, b)
	if table.Meet(2, now, b) != live || live.Live() != 1 {
		t.Errorf("session 2 has %d live requests, want 1", live.Live())
	}
	table.Begin(3, now, b)
	if table.Meet(4, now, b) != nil || table.Len() != 2 {
		t.Error("a session was added to a table that is full of live ones")
	}
}

func TestAbandon(t *testing.T) {
	b := Bounds{Max: 10, TTL: time.Minute}
	var table Table
	idle, live := table.Meet(1, start, b), table.Begin(2, start, b)
	table.MoveTo(idle, "a")
	table.MoveTo(live, "a")
	table.Abandon(idle)
	table.Abandon(live)
	if table.Find(1) != nil || table.Find(2) != live || live.Home() != "" || table.HomeOf("a") != 0 {
		t.Errorf("%d sessions are left, %d at home, want the live one without a home", table.Len(), table.HomeOf("a"))
	}
	table.End(live, start)
	if table.Len() != 0 {
		t.Errorf("%d sessions are left, want none", table.Len())
	}
}
