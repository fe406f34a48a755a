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

// What is heard of the past is no use of today.
func TestMeetInThePast(t *testing.T) {
	b := Bounds{Max: 10, TTL: time.Hour}
	var table Table
	meet := func(key Key, minutes int) {
		t.Helper()
		s := table.Meet(key, start.Add(time.Duration(minutes)*time.Minute), b)
		if s == nil || s.Live() != 0 {
			t.Fatalf("session %d = %+v", key, s)
		}
		table.MoveTo(s, "a")
	}
	meet(1, 10)
	meet(2, 30)
	meet(1, 5)  // known to be used later
	meet(3, 20) // counts as 30
	live := table.Begin(4, start.Add(40*time.Minute), b)
	if s := table.Meet(4, start.Add(-time.Minute), b); s != live || live.Live() != 1 {
		t.Errorf("session 4 = %+v, want the live one", s)
	}
	for _, step := range []struct {
		minutes int
		want    []bool // sessions 1 to 3
	}{
		{70, []bool{true, true, true}},
		{71, []bool{false, true, true}},
		{90, []bool{false, true, true}},
		{91, []bool{false, false, false}},
	} {
		table.End(table.Begin(9, start.Add(time.Duration(step.minutes)*time.Minute), b), start)
		for i, want := range step.want {
			if got := table.Find(Key(i+1)) != nil; got != want {
				t.Errorf("after %d minutes session %d is there: %t, want %t", step.minutes, i+1, got, want)
			}
		}
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
