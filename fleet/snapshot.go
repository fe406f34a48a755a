// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/prefixes"
	"github.com/caddy-llm/loadaware/sessions"
)

// Snapshot is what a fleet remembers beyond the end of the process, so that a
// restart makes no engine compute again what another one has cached: the homes
// of the sessions, the prefix indexes, and where responses are kept. It has
// hashes of what clients have sent, and nothing else of them.
type Snapshot struct {
	// Sessions are in the order of their last use, the last one first.
	Sessions []sessions.Stored

	// Indexes are in the order of their upstreams.
	Indexes []StoredIndex

	// Responses are in the order in which they came.
	Responses []StoredResponse
}

// StoredIndex is the prefix index of an upstream, the block that was used least
// recently first.
type StoredIndex struct {
	Upstream string
	Capacity int
	Blocks   []prefixes.Block
}

// StoredResponse is a response with the upstream that keeps it.
type StoredResponse struct {
	Key      ResponseKey
	Upstream string
}

// copiedAtOnce is how much of a snapshot is copied under one lock, so that no
// placement waits for long.
const copiedAtOnce = 512

// Snapshot returns what the fleet remembers, of sessions those that are not past
// their TTL. The lock is let go again and again, so that what comes meanwhile may
// be in it or not.
func (f *Fleet) Snapshot(b sessions.Bounds, now time.Time) *Snapshot {
	s := new(Snapshot)
	f.mu.Lock()
	known, keeps := f.sessions.Len(), len(f.responses.order)
	f.mu.Unlock()
	s.Sessions = make([]sessions.Stored, 0, known)
	s.Responses = make([]StoredResponse, 0, keeps)
	f.copyTo(s, b, now)
	slices.SortFunc(s.Sessions, func(a, b sessions.Stored) int {
		// in whole seconds, as they are written, so that what was read gives the
		// same bytes again
		return cmp.Or(cmp.Compare(b.LastUse.Unix(), a.LastUse.Unix()), cmp.Compare(a.Key, b.Key))
	})
	return s
}

// copyTo copies what the fleet remembers, in no order.
func (f *Fleet) copyTo(s *Snapshot, b sessions.Bounds, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pause := f.pausing()
	for stored, ok := range f.sessions.Stored(now, b) {
		if ok {
			s.Sessions = append(s.Sessions, stored)
		}
		pause()
	}
	for stored := range f.responses.stored() {
		s.Responses = append(s.Responses, stored)
		pause()
	}
	for _, name := range slices.Sorted(maps.Keys(f.upstreams)) {
		if u, ok := f.upstreams[name]; ok && u.index.Len() > 0 {
			blocks, capacity := u.index.Blocks(), u.index.Capacity()
			f.mu.Unlock()
			s.Indexes = append(s.Indexes, StoredIndex{name, capacity, slices.AppendSeq(make([]prefixes.Block, 0, blocks.Len()), blocks.All())})
			f.mu.Lock()
		}
	}
}

// pausing returns a function that lets the fleet's lock go for a moment each time
// that as much was done as is done at once.
func (f *Fleet) pausing() (pause func()) {
	done := 0
	return func() {
		if done++; done%copiedAtOnce == 0 {
			f.mu.Unlock()
			f.mu.Lock()
		}
	}
}

// Restore takes in what a fleet has remembered, within the bounds of this one,
// and returns how many sessions that were. What the fleet knows already stays as
// it is: it is newer.
func (f *Fleet) Restore(s *Snapshot, b sessions.Bounds, now time.Time) (restored int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pause := f.pausing()
	for _, stored := range s.Sessions {
		if f.sessions.Restore(stored, now, b) {
			restored++
		}
		pause()
	}
	for _, stored := range s.Responses {
		if _, known := f.responses.makers[stored.Key]; !known && stored.Key != 0 {
			f.responses.note(stored.Key, stored.Upstream)
		}
		pause()
	}
	for _, stored := range s.Indexes {
		f.restoreIndex(stored, now)
	}
	return restored
}

// restoreIndex gives an upstream its index back. The caller holds the lock.
func (f *Fleet) restoreIndex(stored StoredIndex, now time.Time) {
	if u := f.remembered(stored.Upstream, now); u != nil {
		u.index.Restore(stored.Blocks, stored.Capacity, f.lastOwner, now)
	}
}
