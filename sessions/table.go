// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package sessions remembers which upstream is a session's home.
//
// A [Table] is bounded in number and in idle time, and knows a session only by
// a hash. A session with a request in flight neither expires nor is evicted:
// long answers outlive any idle time, and the turn after them is the one whose
// prefix is worth the most.
//
// Nothing here is safe for concurrent use: a session is read and written in
// the same step in which its request is placed, under the lock of package
// fleet.
package sessions

import (
	"iter"
	"time"
)

// Key names a session: a hash of everything that identifies it. 0 is no
// session.
type Key uint64

// Session is one conversation.
type Session struct {
	// Size is the prompt of the last successful request, in tokens.
	Size int

	// Line is the prompt of the last successful request.
	Line Line

	// Strangers counts the requests under the session's name, in a row, that
	// were no turns of its conversation.
	Strangers int

	// Settled is the last home on which a request succeeded, "" if none has.
	// That is where a session goes back to when its move fails.
	Settled string

	// Indexed says that a prompt of the session was recorded in the prefix
	// index. Until then its size tells what is cached at its home.
	Indexed bool

	// Version is that of the home, for routers that share it.
	Version Version

	// Told is the serial of the last news that the session was in.
	Told uint64

	home    string
	moves   uint64
	key     Key
	lastUse time.Time
	live    int

	// neighbours among the sessions without a live request, by last use
	newer, older *Session
}

// Key names the session.
func (s *Session) Key() Key { return s.key }

// Live is how many requests of the session are in flight.
func (s *Session) Live() int { return s.live }

// Home is the upstream that holds the session's KV cache, "" while there is
// none.
func (s *Session) Home() string { return s.home }

// Moves counts how often the home was written. Whoever wants to take a write
// back compares it first: a later write must stay.
func (s *Session) Moves() uint64 { return s.moves }

// Table holds the sessions of a fleet. Its zero value is empty and ready.
type Table struct {
	sessions map[Key]*Session

	// homes counts the sessions of each home
	homes map[string]int

	// newest and oldest end the list of sessions that have no live request
	newest, oldest *Session
}

// Bounds limit a table. They are passed with every call because they belong to
// a configuration, and the table outlives configurations.
type Bounds struct {
	// Max is the most sessions to hold. When one more comes, the least
	// recently used one without a live request goes.
	Max int

	// TTL is how long a session without a live request is kept.
	TTL time.Duration
}

// Len is how many sessions are held, also those that are past their TTL and
// were not looked for since.
func (t *Table) Len() int { return len(t.sessions) }

// Begin returns the session named key, with one live request more, and adds it
// when it is missing or has expired. It returns nil when the table is full of
// sessions with live requests: that request is placed as one without a session.
// Each session returned must be given back with [Table.End].
func (t *Table) Begin(key Key, now time.Time, b Bounds) *Session {
	t.expire(now, b)
	s := t.sessions[key]
	if s != nil && s.live == 0 {
		if now.Sub(s.lastUse) > b.TTL {
			t.forget(s)
			s = nil
		} else {
			t.unlink(s)
		}
	}
	if s == nil {
		if s = t.add(key, b); s == nil {
			return nil
		}
	}
	s.live++
	s.lastUse = now
	return s
}

// Find returns the session named key, or nil. It is no use of the session.
func (t *Table) Find(key Key) *Session { return t.sessions[key] }

// Preview returns what [Table.Begin] would return now, as a copy: nothing of it
// reaches the table.
func (t *Table) Preview(key Key, now time.Time, b Bounds) *Session {
	s := t.sessions[key]
	if s != nil && (s.live > 0 || now.Sub(s.lastUse) <= b.TTL) {
		known := *s
		known.live++
		return &known
	}
	if s == nil && len(t.sessions) >= b.Max && t.oldest == nil {
		return nil
	}
	return &Session{key: key, live: 1}
}

// End takes one live request off s. A session that never found a home is
// forgotten with its last request.
func (t *Table) End(s *Session, now time.Time) {
	s.live--
	if s.live > 0 || t.sessions[s.key] != s {
		return
	}
	if s.home == "" {
		delete(t.sessions, s.key)
		return
	}
	s.lastUse = now
	t.link(s)
}

// MoveTo makes upstream the home of s and returns the home it had. "" leaves s
// without one.
func (t *Table) MoveTo(s *Session, upstream string) (previous string) {
	previous = s.home
	if t.sessions[s.key] == s {
		t.count(previous, -1)
		t.count(upstream, 1)
	}
	s.home = upstream
	s.moves++
	return previous
}

// HomeOf is how many sessions have upstream as their home.
func (t *Table) HomeOf(upstream string) int { return t.homes[upstream] }

// Clear forgets every session. Live requests end on the sessions they began.
func (t *Table) Clear() { *t = Table{} }

// All ranges over the sessions in no order.
func (t *Table) All() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, s := range t.sessions {
			if !yield(s) {
				return
			}
		}
	}
}

// expire drops what is past its TTL. Each call drops at most as many sessions
// as keep the work of one placement small; the rest go with the next.
func (t *Table) expire(now time.Time, b Bounds) {
	const most = 16
	for range most {
		if t.oldest == nil || now.Sub(t.oldest.lastUse) <= b.TTL {
			return
		}
		t.forget(t.oldest)
	}
}

func (t *Table) add(key Key, b Bounds) *Session {
	for len(t.sessions) >= b.Max {
		if t.oldest == nil {
			return nil
		}
		t.forget(t.oldest)
	}
	if t.sessions == nil {
		t.sessions = make(map[Key]*Session)
	}
	s := &Session{key: key}
	t.sessions[key] = s
	return s
}

func (t *Table) forget(s *Session) {
	t.unlink(s)
	t.count(s.home, -1)
	delete(t.sessions, s.key)
}

func (t *Table) count(home string, by int) {
	if home == "" {
		return
	}
	if t.homes == nil {
		t.homes = make(map[string]int)
	}
	if t.homes[home] += by; t.homes[home] <= 0 {
		delete(t.homes, home)
	}
}

func (t *Table) link(s *Session) {
	s.older = t.newest
	if t.newest == nil {
		t.oldest = s
	} else {
		t.newest.newer = s
	}
	t.newest = s
}

func (t *Table) unlink(s *Session) {
	if s.newer == nil {
		t.newest = s.older
	} else {
		s.newer.older = s.older
	}
	if s.older == nil {
		t.oldest = s.newer
	} else {
		s.older.newer = s.newer
	}
	s.newer, s.older = nil, nil
}
