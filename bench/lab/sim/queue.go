// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"math"
	"time"
)

// never is later than everything.
const never = time.Duration(math.MaxInt64)

// queue holds what is to happen, in order of time and then of entry.
type queue struct {
	events eventHeap
	count  uint64
}

type event struct {
	at time.Duration
	nr uint64
	do func()
}

func (q *queue) push(at time.Duration, do func()) {
	q.count++
	heap.Push(&q.events, event{at: at, nr: q.count, do: do})
}

// next is when the first event happens, never if there is none.
func (q *queue) next() time.Duration {
	if len(q.events) == 0 {
		return never
	}
	return q.events[0].at
}

func (q *queue) pop() (do func()) { return heap.Pop(&q.events).(event).do }

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].nr < h[j].nr
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = event{}
	*h = (*h)[:last]
	return e
}
