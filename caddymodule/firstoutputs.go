// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"time"

	"github.com/caddy-llm/loadaware/fleet"
)

// shownIntervals is over how many intervals the page draws the time to first
// output.
const shownIntervals = 120

// firstOutputs follows the time to first output over the intervals in which
// somebody watches.
type firstOutputs struct {
	// interval is the last one, and totals what every upstream had counted then
	interval int64
	totals   map[string]fleet.Histogram

	// p50 and p95 have one point for each interval, the last one last
	p50, p95 []*int64
}

func (o *firstOutputs) forget() { *o = firstOutputs{} }

// take adds the point of an interval. What has come since the last look, however
// long ago that was, makes one point.
func (o *firstOutputs) take(interval int64, view *fleet.View) {
	var came fleet.Histogram
	totals := make(map[string]fleet.Histogram, len(view.Upstreams))
	for i := range view.Upstreams {
		u := &view.Upstreams[i]
		totals[u.Name] = u.Totals.FirstOutput
		if before, ok := o.totals[u.Name]; ok {
			more := u.Totals.FirstOutput.Since(before)
			came.Add(&more)
		}
	}
	missed := min(interval-o.interval-1, shownIntervals)
	if o.totals == nil {
		missed = 0
	}
	for range missed {
		o.add(nil, nil)
	}
	o.interval, o.totals = interval, totals
	if came.Count() == 0 {
		o.add(nil, nil)
		return
	}
	o.add(milliseconds(came.Quantile(0.5)), milliseconds(came.Quantile(0.95)))
}

func milliseconds(d time.Duration) *int64 {
	ms := d.Milliseconds()
	return &ms
}

// add adds a point and lets the oldest one go.
func (o *firstOutputs) add(p50, p95 *int64) {
	for _, points := range []*[]*int64{&o.p50, &o.p95} {
		if len(*points) == shownIntervals {
			copy(*points, (*points)[1:])
			*points = (*points)[:shownIntervals-1]
		}
	}
	o.p50, o.p95 = append(o.p50, p50), append(o.p95, p95)
}

// status describes the points. It shares them, and has to be encoded before the
// next take.
func (o *firstOutputs) status() *firstOutputStatus {
	return &firstOutputStatus{o.p50, o.p95}
}
