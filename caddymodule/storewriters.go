// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// storeWriters is what the session stores of a fleet share. Several policies
// have one when sites share a fleet, and while a new configuration takes over
// from an old one.
type storeWriters struct {
	// restored is done when the sessions were read
	restored sync.Once

	mu sync.Mutex
	// started are the stores that have started and not stopped, the last one
	// last
	started []*sessionStore

	// writing is held while one of them writes. It guards written, the hash of
	// what was stored last, and failing, which says that the last try failed.
	writing sync.Mutex
	written uint64
	failing bool
}

// enter adds a store that starts.
func (w *storeWriters) enter(s *sessionStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = append(w.started, s)
}

// leave takes a store away that stops.
func (w *storeWriters) leave(s *sessionStore) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = slices.DeleteFunc(w.started, func(other *sessionStore) bool { return other == s })
}

// wrote notes what is in the storage.
func (w *storeWriters) wrote(data []byte) {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.written = xxhash.Sum64(data)
}

// owner is the store that writes, nil where there is none.
func (w *storeWriters) owner() *sessionStore {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.started) == 0 {
		return nil
	}
	return w.started[len(w.started)-1]
}

// last reports that s is the one that writes, and that no other configuration's
// does after it.
func (w *storeWriters) last(s *sessionStore) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.started)
	return n > 0 && w.started[n-1] == s && !slices.ContainsFunc(w.started, func(other *sessionStore) bool {
		return other.life.Done() != s.life.Done()
	})
}
