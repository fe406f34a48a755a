// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import (
	"reflect"
	"testing"
	"time"
)

// stored are the sessions of a table that are to be kept, by key.
func stored(t *Table, now time.Time, b Bounds) map[Key]Stored {
	kept := map[Key]Stored{}
	for s, ok := range t.Stored(now, b) {
		if ok {
			kept[s.Key] = s
		}
	}
	return kept
}

func TestStoredRoundTrip(t *testing.T) {
	begin := time.Unix(1000, 0)
	b := Bounds{Max: 10, TTL: time.Hour}
	var table Table
	for key := Key(1); key <= 4; key++ {
		at := begin.Add(time.Duration(key) * time.Minute)
		s := table.Begin(key, at, b)
		s.Size, s.Line, s.Indexed = int(key)*100, NewLine(7, []uint64{1, uint64(key)}), key%2 == 0
		table.MoveTo(s, "a")
		if key != 3 {
			s.Settled = "a"
		}
		table.End(s, at)
	}
	kept := stored(&table, begin.Add(time.Hour+time.Minute+1), b)
	if _, expired := kept[1]; expired || len(kept) != 2 {
		t.Fatalf("Stored() = %v, want sessions 2 and 4", kept)
	}

	var next Table
	for _, key := range []Key{4, 2} {
		if !next.Restore(kept[key], begin.Add(time.Hour), b) || next.Restore(kept[key], begin.Add(time.Hour), b) {
			t.Errorf("session %d was not restored, or twice", key)
		}
	}
	if again := stored(&next, begin.Add(time.Hour), b); !reflect.DeepEqual(again, kept) {
		t.Errorf("Stored() after Restore() = %v, want %v", again, kept)
	}
	if s := next.Find(2); s.Home() != "a" || !s.Line.Extends([]uint64{1, 2, 3}) || next.HomeOf("a") != 2 {
		t.Errorf("session 2 = %+v, %d at home", s, next.HomeOf("a"))
	}
	// 2 is past its TTL first
	s := next.Begin(9, begin.Add(time.Hour+3*time.Minute), b)
	if next.Find(2) != nil || next.Find(4) == nil || next.HomeOf("a") != 1 {
		t.Error("session 2 is there, or 4 is not")
	}
	next.End(s, begin.Add(time.Hour))
}

func TestRestoreRefuses(t *testing.T) {
	now := time.Unix(10_000, 0)
	b := Bounds{Max: 2, TTL: time.Hour}
	good := Stored{Key: 1, Home: "a", LastUse: now}
	for name, change := range map[string]func(*Stored){
		"no key":  func(s *Stored) { s.Key = 0 },
		"no home": func(s *Stored) { s.Home = "" },
		"expired": func(s *Stored) { s.LastUse = now.Add(-time.Hour - 1) },
	} {
		var table Table
		s := good
		change(&s)
		if table.Restore(s, now, b) || table.Len() != 0 {
			t.Errorf("%s: restored", name)
		}
	}
	var table Table
	for key := range Key(4) {
		good.Key = key + 1
		if got := table.Restore(good, now, b); got != (key < 2) {
			t.Errorf("Restore() of session %d = %v", key+1, got)
		}
	}
}
