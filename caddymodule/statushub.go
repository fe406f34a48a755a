// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"encoding/json"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// statusHubs holds the hubs in use. Handlers of all configurations share those of
// the same fleet and interval.
var statusHubs = caddy.NewUsagePool()

type statusHubKey struct {
	fleet    string
	interval time.Duration
}

// statusHub makes the events of a fleet. It has no goroutine: the first viewer who
// wants the event of an interval makes it, and the others get the same one.
type statusHub struct {
	key   statusHubKey
	epoch time.Time

	mu      sync.Mutex
	made    int64 // the interval of last, counted from 1
	last    []byte
	outputs firstOutputs
}

func acquireStatusHub(fleet string, interval time.Duration) *statusHub {
	key := statusHubKey{fleet, interval}
	// the constructor cannot fail
	value, _, _ := statusHubs.LoadOrNew(key, func() (caddy.Destructor, error) {
		return &statusHub{key: key, epoch: time.Now()}, nil
	})
	return value.(*statusHub)
}

// release takes one reference back. A viewer may still use the hub.
func (h *statusHub) release() {
	// the destructor cannot fail
	_, _ = statusHubs.Delete(h.key)
}

// Destruct implements caddy.Destructor. A hub is memory and nothing else.
func (*statusHub) Destruct() error { return nil }

// event returns the event of the interval under way, and when the next one
// begins. The event must not be changed.
func (h *statusHub) event(now time.Time) (event []byte, next time.Duration) {
	since := now.Sub(h.epoch)
	interval := int64(since/h.key.interval) + 1
	next = time.Duration(interval)*h.key.interval - since
	h.mu.Lock()
	defer h.mu.Unlock()
	if interval > h.made {
		status := h.look(interval, now)
		h.made, h.last = interval, status.event()
	}
	return h.last, next
}

// pagePlacements is how many placements the page shows.
const pagePlacements = 20

// look takes copies of what an event needs. The fleet's lock is held for each copy
// alone, and not here.
func (h *statusHub) look(interval int64, now time.Time) *pageStatus {
	status := &pageStatus{
		Time:       now,
		Name:       h.key.fleet,
		Page:       statusPageVersion,
		IntervalMS: h.key.interval.Milliseconds(),
	}
	f, inUse := findFleet(h.key.fleet)
	if !inUse {
		h.outputs.forget()
		return status
	}
	view := f.View(now)
	h.outputs.take(interval, &view)
	described := describeView(h.key.fleet, &view, now)
	for i := range described.Upstreams {
		// the page does not show them, and they may be many
		described.Upstreams[i].Models = nil
	}
	status.Fleet = &described
	status.FirstOutput = h.outputs.status()
	status.Placements = describeDecisions(f.Outlines(pagePlacements))
	for i := range status.Placements {
		status.Placements[i].Upstreams = nil
	}
	return status
}

// pageStatus is the JSON form of an event of the status page. Without `fleet`, no
// configuration uses it.
type pageStatus struct {
	Time  time.Time    `json:"time"`
	Name  string       `json:"name"`
	Fleet *fleetStatus `json:"fleet,omitempty"`

	// Placements are the last 20, the last one first, without what the upstreams
	// were worth.
	Placements  []placementStatus  `json:"placements,omitempty"`
	FirstOutput *firstOutputStatus `json:"first_output,omitempty"`

	// IntervalMS is the time to the next event, and Page another one when the
	// files of the page have changed.
	IntervalMS int64  `json:"interval_ms"`
	Page       string `json:"page"`
}

// event encodes the event. It touches nothing that is shared.
func (s *pageStatus) event() []byte {
	var event bytes.Buffer
	event.WriteString("data: ")
	// what has only strings, numbers and times of this era can be encoded; the
	// encoder ends the line
	_ = json.NewEncoder(&event).Encode(s)
	event.WriteByte('\n')
	return event.Bytes()
}

// firstOutputStatus is the JSON form of the time to first output of streamed
// responses in the last intervals, in milliseconds, the last one last: estimated
// from a histogram, and null where none was seen.
type firstOutputStatus struct {
	P50MS []*int64 `json:"p50_ms"`
	P95MS []*int64 `json:"p95_ms"`
}

// Interface guards
var _ caddy.Destructor = (*statusHub)(nil)
