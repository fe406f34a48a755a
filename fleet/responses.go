// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"iter"
	"slices"
)

// ResponseKey names a response that an engine keeps: a hash of its id. 0 is
// none.
type ResponseKey uint64

// maxResponses is of how many responses a fleet remembers where they are kept.
// The oldest go first: a conversation goes on from its last response. With all
// of them the table is about 4 MiB.
const maxResponses = 100_000

// responses remembers which upstream has made which response. An engine keeps
// its responses in its own memory, so nobody else can answer for them. Its zero
// value is empty and ready.
type responses struct {
	makers map[ResponseKey]string

	// order has the keys of makers as they came. Once it is full it is a ring
	// in which next is the oldest.
	order []ResponseKey
	next  int
}

// note remembers the upstream that has made a response.
func (t *responses) note(key ResponseKey, upstream string) {
	if t.makers == nil {
		t.makers = make(map[ResponseKey]string)
	}
	if _, known := t.makers[key]; !known {
		if len(t.order) < maxResponses {
			t.order = append(t.order, key)
		} else {
			delete(t.makers, t.order[t.next])
			t.order[t.next] = key
			t.next = (t.next + 1) % maxResponses
		}
	}
	t.makers[key] = upstream
}

// stored ranges over the responses as they came. The table may change between
// two of them: what came first may then be left out.
func (t *responses) stored() iter.Seq[StoredResponse] {
	return func(yield func(StoredResponse) bool) {
		n, first := len(t.order), t.next
		for i := range n {
			key := t.order[(first+i)%n]
			if !yield(StoredResponse{key, t.makers[key]}) {
				return
			}
		}
	}
}

// Keeps notes that the placement's upstream keeps the response, so that
// requests which refer to it find it there.
func (p *Placement) Keeps(key ResponseKey) {
	f := p.fleet
	if f == nil || key == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.responses.note(key, p.Upstream())
	f.gathered.response(key)
}

// keeper returns the position of the upstream that keeps the response to which
// the request refers, -1 where there is none among usable or the request has
// failed there before. Nothing else speaks against it: no other upstream can
// answer. The caller holds the lock.
func (f *Fleet) keeper(req *Request, pool *Pool, usable []int) int {
	if req.Response == 0 {
		return -1
	}
	name, ok := f.responses.makers[req.Response]
	if !ok || slices.Contains(req.Tried, name) {
		return -1
	}
	for _, at := range usable {
		if pool.names[at] == name {
			return at
		}
	}
	return -1
}
