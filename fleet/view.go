// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/picker"
)

// exportedFor is how long an upstream that no configuration lists stays in
// view after a placement has seen it. One that the last configuration has
// stopped to list is gone from view at once.
const exportedFor = time.Minute

// View is the state of a fleet at one moment, copied.
type View struct {
	// Sessions is how many sessions the fleet remembers.
	Sessions int

	// QueueWaiting is how many requests wait for room, by [Class].
	// QueueRejected counts by [Refusal] those that waited or were to wait and
	// were not placed, and QueueWait how long those waited that were.
	QueueWaiting  [classes]int
	QueueRejected [refusals]uint64
	QueueWait     Histogram

	// Shadow is how other policies have chosen.
	Shadow ShadowTotals

	// Peers is how many other routers share the fleet, as far as they were heard
	// lately, and NewsDropped how much of what there was to tell them nobody has
	// asked for in time.
	Peers       int
	NewsDropped uint64

	// Upstreams are those that a configuration lists, that a placement could
	// have chosen within the last minute and since one has listed them, that
	// are drained, or that have anything in flight, by name.
	Upstreams []UpstreamView
}

// UpstreamView is the state of one upstream at one moment.
type UpstreamView struct {
	Name     string
	Requests int
	Prefill  int
	Waiting  int

	// Peers is what the other routers of the fleet hold here.
	Peers picker.Load

	// FailedLoad is the load that failed dispatches still stand for, in
	// requests.
	FailedLoad float64

	// Sessions is how many sessions have their home here.
	Sessions int

	// PrefixBlocks is how many prompt blocks are believed to be cached here,
	// and PrefixCapacity how many there is room for.
	PrefixBlocks, PrefixCapacity int

	// State is what speaks against the upstream for any request: one of
	// [States].
	State string

	// Others is the load from elsewhere, in requests, and Report the last
	// report of the engine, taken at Reported, which is zero while there is
	// none. It may be too old to be believed.
	Others   float64
	Report   engines.Report
	Reported time.Time

	// PrefillRate is the measured prefill rate in tokens per second, 0 while it
	// is not known, and Speed what it is relative to the fleet.
	PrefillRate, Speed float64

	// Belief is which part of the believed prefix hits were real, from 0 to 1.
	Belief float64

	// Models are the names that the upstream lists, in order, nil where that
	// is not known.
	Models []string

	Totals Totals
}

// View returns the state of the fleet as of now. The lock is held for the copy,
// and for who waits and has room by now.
func (f *Fleet) View(now time.Time) View {
	// the room is made and the order found without the lock
	n := f.size()
	v := View{Upstreams: make([]UpstreamView, 0, n)}
	lists := make([]modelList, 0, n)
	f.mu.Lock()
	f.expirePeers(now)
	v.Peers = f.peers.alive
	v.NewsDropped = f.gathered.dropped
	v.Sessions = f.sessions.Len()
	v.QueueRejected = f.queue.refused
	v.QueueWait = f.queue.wait
	v.Shadow = f.shadow
	for class := range f.queue.lines {
		v.QueueWaiting[class] = f.queue.lines[class].len()
	}
	rates := f.rates()
	silent := 0
	for _, u := range f.upstreams {
		if u.silent(now) {
			silent++
		}
	}
	for name, u := range f.upstreams {
		quiet := u.unlisted || now.Sub(u.seen) > exportedFor
		if u.listed <= 0 && !u.drained && u.counters.Idle() && quiet {
			continue
		}
		report, reported := u.engine.Report()
		rate := u.meter.Rate()
		v.Upstreams = append(v.Upstreams, UpstreamView{
			State:          stateNames[u.state(silent < len(f.upstreams), now)],
			Others:         u.engine.Others(now),
			Report:         report,
			Reported:       reported,
			PrefillRate:    rate,
			Speed:          relative(rate, rates),
			Belief:         u.engine.Belief(),
			Name:           name,
			Requests:       u.counters.Requests(),
			Prefill:        u.counters.Prefill(),
			Waiting:        u.counters.Waiting(),
			Peers:          u.counters.Peers(),
			FailedLoad:     u.counters.Failed(now),
			Sessions:       f.sessions.HomeOf(name),
			PrefixBlocks:   u.index.Len(),
			PrefixCapacity: u.index.Capacity(),
			Totals:         u.totals,
		})
		// it is replaced when it changes, and need not be copied
		lists = append(lists, u.models)
	}
	f.done(now)
	for i := range lists {
		v.Upstreams[i].Models = lists[i].names(now)
	}
	slices.SortFunc(v.Upstreams, func(a, b UpstreamView) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

// size is how many upstreams the fleet knows.
func (f *Fleet) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.upstreams)
}
