// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"slices"
	"time"
)

// exportedFor is how long an upstream that no configuration lists stays in
// view after a placement has seen it.
const exportedFor = time.Minute

// View is the state of a fleet at one moment, copied.
type View struct {
	// Sessions is how many sessions the fleet remembers.
	Sessions int

	// Upstreams are those that a configuration lists, that a placement could
	// have chosen within the last minute, or that have anything in flight, by
	// name.
	Upstreams []UpstreamView
}

// UpstreamView is the state of one upstream at one moment.
type UpstreamView struct {
	Name     string
	Requests int
	Prefill  int
	Waiting  int

	// FailedLoad is the load that failed dispatches still stand for, in
	// requests.
	FailedLoad float64

	// Sessions is how many sessions have their home here.
	Sessions int

	// PrefixBlocks is how many prompt blocks are believed to be cached here,
	// and PrefixCapacity how many there is room for.
	PrefixBlocks, PrefixCapacity int

	Totals Totals
}

// View returns the state of the fleet as of now. The lock is held for the copy
// alone.
func (f *Fleet) View(now time.Time) View {
	f.mu.Lock()
	v := View{
		Sessions:  f.sessions.Len(),
		Upstreams: make([]UpstreamView, 0, len(f.upstreams)),
	}
	for name, u := range f.upstreams {
		if u.listed <= 0 && u.counters.Idle() && now.Sub(u.seen) > exportedFor {
			continue
		}
		v.Upstreams = append(v.Upstreams, UpstreamView{
			Name:           name,
			Requests:       u.counters.Requests(),
			Prefill:        u.counters.Prefill(),
			Waiting:        u.counters.Waiting(),
			FailedLoad:     u.counters.Failed(now),
			Sessions:       f.sessions.HomeOf(name),
			PrefixBlocks:   u.index.Len(),
			PrefixCapacity: u.index.Capacity(),
			Totals:         u.totals,
		})
	}
	f.mu.Unlock()
	slices.SortFunc(v.Upstreams, func(a, b UpstreamView) int { return cmp.Compare(a.Name, b.Name) })
	return v
}
