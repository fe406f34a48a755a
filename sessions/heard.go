// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

import "time"

// Version tells homes of a session apart that were chosen by several routers.
type Version struct {
	// Number counts the session's homes, and Since is when this one was chosen,
	// in nanoseconds of Unix time.
	Number uint64
	Since  int64
}

// Compare returns 1 where the home v of a session counts and the home w does
// not, and -1 where it is the other way round: the later one counts, and of two
// that were chosen at once the one that was first.
func (v Version) Compare(w Version) int {
	switch {
	case v.Number > w.Number, v.Number == w.Number && v.Since < w.Since:
		return 1
	case v == w:
		return 0
	}
	return -1
}

// Meet returns the session named key as one that another router has used. It is
// added when it is missing or has expired. A use that is older than one that is
// known of the session changes nothing, and one that is older than the last of
// another session counts as made at that one's time: they are held in that order. It
// returns nil when the table is full of sessions with live requests.
func (t *Table) Meet(key Key, used time.Time, b Bounds) *Session {
	if t.newest != nil && used.Before(t.newest.lastUse) {
		if s := t.sessions[key]; s != nil && !used.After(s.lastUse) {
			return s
		}
		used = t.newest.lastUse
	}
	s := t.Begin(key, used, b)
	if s == nil {
		return nil
	}
	if s.live--; s.live == 0 {
		t.link(s)
	}
	return s
}

// Abandon takes the home of s away. Without a live request s is forgotten.
func (t *Table) Abandon(s *Session) {
	t.MoveTo(s, "")
	if s.live == 0 && t.sessions[s.key] == s {
		t.forget(s)
	}
}
