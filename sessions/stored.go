// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import (
	"iter"
	"time"
)

// Stored is what is worth keeping of a session when the process ends.
type Stored struct {
	Key Key

	// Home is the upstream on which the session last succeeded, and Size the
	// prompt of that request, in tokens.
	Home string
	Size int

	// Head, Last and Blocks are the session's [Line].
	Head, Last uint64
	Blocks     int

	// Indexed is the session's own.
	Indexed bool

	LastUse time.Time
}

// Stored ranges over what to keep of the sessions, in no order. It is false for
// one of which there is nothing to keep: one that is past its TTL, or on which no
// request has succeeded. The table may change between two of them; what comes or
// goes meanwhile may be left out or not.
func (t *Table) Stored(now time.Time, b Bounds) iter.Seq2[Stored, bool] {
	return func(yield func(Stored, bool) bool) {
		for _, s := range t.sessions {
			if stored := s.stored(now); !yield(stored, stored.Home != "" && now.Sub(stored.LastUse) <= b.TTL) {
				return
			}
		}
	}
}

func (s *Session) stored(now time.Time) Stored {
	used := s.lastUse
	if s.live > 0 {
		used = now
	}
	return Stored{
		Key: s.key, Home: s.Settled, Size: s.Size,
		Head: s.Line.Head, Last: s.Line.Last, Blocks: s.Line.Blocks,
		Indexed: s.Indexed,
		LastUse: used,
	}
}

// Restore adds a stored session as the one that is used least recently. It
// reports false where the table knows the session or is full, and where the
// session is past its TTL: what the table has is newer than what was stored.
func (t *Table) Restore(stored Stored, now time.Time, b Bounds) bool {
	used := stored.LastUse
	if used.After(now) {
		used = now
	}
	if stored.Key == 0 || stored.Home == "" || now.Sub(used) > b.TTL || len(t.sessions) >= b.Max || t.sessions[stored.Key] != nil {
		return false
	}
	s := t.add(stored.Key, b)
	s.Size, s.Settled, s.home = stored.Size, stored.Home, stored.Home
	s.Line = Line{Head: stored.Head, Last: stored.Last, Blocks: stored.Blocks}
	s.Indexed, s.lastUse = stored.Indexed, used
	t.count(s.home, 1)
	s.newer = t.oldest
	if t.oldest == nil {
		t.newest = s
	} else {
		t.oldest.older = s
	}
	t.oldest = s
	return true
}
