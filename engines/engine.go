// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"time"
)

// KV usage from which an engine is full, and under which it no longer is.
const (
	fullFrom  = 0.95
	fullUntil = 0.90
)

// frozenAfter is how long no token counter may stand still while the gauges
// say that requests run. vLLM's gauges move only when an engine puts something
// out: after a mass abort they stay at what they were.
const frozenAfter = 10 * time.Second

// mostOthers bounds what a page may claim of requests from elsewhere: infinite
// costs can be compared with no others.
const mostOthers = 1_000_000

// Engine is what is known of the engine behind one upstream. The zero value
// knows nothing. What is unknown corrects nothing: it makes an engine look
// neither idle nor full.
type Engine struct {
	report Report
	own    int

	// taken is when the report was taken, expires when it is too old to be
	// believed, and moved when a counter of it was last seen to move
	taken, expires, moved time.Time

	full   bool
	belief belief
}

// Observe takes a report in. own is the most requests that this router had in
// flight here since the report before, now when the report was taken, and valid
// how long it may be believed. It reports whether the engine has lost its
// prefix cache since the last report: it was started anew, or fell asleep.
//
// The most, because the gauges lag behind: what ended a moment ago may still be
// counted in them, and must not look like somebody else's request.
func (e *Engine) Observe(r Report, own int, now time.Time, valid time.Duration) (emptied bool) {
	last := e.report
	first := e.taken.IsZero()
	restarted := !first && restarted(last, r)
	emptied = restarted || r.Asleep && !last.Asleep
	if first || restarted || moved(last, r) {
		e.moved = now
	}
	hits := r.PrefixHits.Value - last.PrefixHits.Value
	e.belief.measure(hits, r.PrefixHits.Known && last.PrefixHits.Known && !first && !restarted)
	e.report = r.since(last)
	e.own, e.taken, e.expires = own, now, now.Add(valid)
	switch usage := e.report.KVUsage; {
	case !usage.Known || usage.Value < fullUntil:
		e.full = false
	case usage.Value >= fullFrom:
		e.full = true
	}
	return emptied
}

// Account says that so many more of the requests that the last report has are not
// from elsewhere.
func (e *Engine) Account(requests int) { e.own += requests }

// since fills in what does not change while an engine runs from the report
// before, for pages that leave it out once in a while.
func (r Report) since(last Report) Report {
	if !r.KVTokens.Known {
		r.KVTokens = last.KVTokens
	}
	if !r.Started.Known {
		r.Started = last.Started
	}
	return r
}

// counters are the numbers of a report that only grow.
func (r *Report) counters() [4]Number {
	return [4]Number{r.Computed, r.Generated, r.PrefixQueries, r.PrefixHits}
}

// restarted reports that the process behind r is another than that of last.
func restarted(last, r Report) bool {
	if last.Started.Known && r.Started.Known && last.Started != r.Started {
		return true
	}
	before, after := last.counters(), r.counters()
	for i := range after {
		if before[i].Known && after[i].Known && after[i].Value < before[i].Value {
			return true
		}
	}
	return false
}

// moved reports that the engine has done something between two reports. Where
// it counts no tokens, its gauges have to tell.
func moved(last, r Report) bool {
	before, after := last.counters(), r.counters()
	counted := false
	for i := range after {
		if after[i].Known {
			counted = true
			if after[i] != before[i] {
				return true
			}
		}
	}
	return !counted && (r.Running != last.Running || r.Waiting != last.Waiting || r.KVUsage != last.KVUsage)
}

// current reports that the last report may still be believed.
func (e *Engine) current(now time.Time) bool {
	return !e.taken.IsZero() && now.Before(e.expires)
}

// live reports that the gauges of the last report may be believed.
func (e *Engine) live(now time.Time) bool {
	return e.current(now) && now.Sub(e.moved) < frozenAfter
}

// Others returns how many requests the engine has that this router did not
// send, 0 where that is not known.
func (e *Engine) Others(now time.Time) float64 {
	running, waiting := e.report.Running, e.report.Waiting
	if !running.Known || !e.live(now) {
		return 0
	}
	return min(max(running.Value+waiting.Value-float64(e.own), 0), mostOthers)
}

// Full reports that the engine's KV cache is full: it was at 95 % or more and
// has not been under 90 % since.
func (e *Engine) Full(now time.Time) bool { return e.full && e.live(now) }

// Asleep reports that the engine sleeps.
func (e *Engine) Asleep(now time.Time) bool { return e.report.Asleep && e.current(now) }

// KVTokens returns how many tokens the engine's KV cache holds, 0 where it has
// never said so, and what 32 bits hold where it is absurd.
func (e *Engine) KVTokens() int { return int(min(e.report.KVTokens.Value, math.MaxInt32)) }

// Report returns the last report and when it was taken, the zero time while
// there is none.
func (e *Engine) Report() (r Report, taken time.Time) { return e.report, e.taken }

// Predicted notes that a request whose prefill is done was believed to find
// tokens of its prompt in the prefix cache.
func (e *Engine) Predicted(tokens int) { e.belief.predict(float64(tokens)) }

// Cached notes that a response has reported cached tokens where so many were
// predicted. It counts only where the engine's own counter is not known.
func (e *Engine) Cached(predicted, cached int, now time.Time) {
	if e.report.PrefixHits.Known && e.current(now) {
		return
	}
	e.belief.add(float64(predicted), float64(cached))
}

// Belief returns which part of the believed prefix hits are real, from 0 to 1;
// 1 while too few were measured.
func (e *Engine) Belief() float64 { return e.belief.share() }
