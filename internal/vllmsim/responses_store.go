// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"maps"
	"sync"
)

// maxStored is how many responses are remembered; the oldest go first.
const maxStored = 1000

// stored is a response that can be asked for. It is replaced, never changed.
type stored struct {
	body         object
	conversation []message // what a next response continues
	cancel       func()    // of a response in the background, or nil
}

// responseStore remembers responses, in memory only, like vLLM. It is safe for concurrent use.
type responseStore struct {
	mu    sync.Mutex
	byID  map[string]*stored
	order []string
}

func newResponseStore() *responseStore {
	return &responseStore{byID: map[string]*stored{}}
}

func (s *responseStore) get(id string) *stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func (s *responseStore) put(id string, r *stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byID[id] = r
	s.order = append(s.order, id)
	if len(s.order) > maxStored {
		delete(s.byID, s.order[0])
		s.order = s.order[1:]
	}
}

// complete stores the final body of a response, unless it was canceled or deleted meanwhile.
func (s *responseStore) complete(id string, body object, conversation []message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byID[id]
	if old == nil || old.body["status"] == "cancelled" {
		return
	}
	s.byID[id] = &stored{body: body, conversation: conversation, cancel: old.cancel}
}

// cancel stops a response in the background, unless it has ended, and returns its body.
func (s *responseStore) cancel(id string) object {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byID[id]
	if old == nil {
		return nil
	}
	if old.body["status"] == "completed" {
		return old.body
	}
	body := maps.Clone(old.body)
	body["status"] = "cancelled"
	s.byID[id] = &stored{body: body, conversation: old.conversation, cancel: old.cancel}
	old.cancel()
	return body
}

func (s *responseStore) remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byID[id]
	if old == nil {
		return false
	}
	if old.cancel != nil {
		old.cancel()
	}
	delete(s.byID, id)
	return true
}

// clear forgets everything.
func (s *responseStore) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.byID)
	s.order = nil
}
