// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"
)

// outlook estimates when there is room for another request like that of t, which
// is not in line, if it comes back: the soonest of any candidate. With n of
// them, each gets one nth of what waits before it,
//
//	tokens:   (prefill + waiting tokens / n + own - max_prefill_tokens) / prefill rate
//	requests: (in flight + waiting requests / n + 1 - max_requests) × typical time / max_requests
//
// and the later of the two counts. Of those that wait, the ones of the same
// model count, and of a better class or the same. While the prefill rate is not
// known it is taken to be 2,000 tokens per second, and the typical time of a
// request to be a second. It is [lookEvery] where there is no candidate. The
// caller holds the lock.
func (f *Fleet) outlook(t *Ticket, now time.Time) time.Duration {
	if len(t.usable) == 0 {
		return lookEvery
	}
	f.resolve(t.Pool)
	f.stand(t.Request, "", t.Pool, t.usable, t.Options, now)
	requests, tokens := f.ahead(t)
	n := float64(len(f.positions))
	requests, tokens = requests/n, tokens/n
	soonest := math.Inf(1)
	for _, at := range f.positions {
		soonest = min(soonest, f.clears(t.Pool.upstreams[at], t, requests, tokens))
	}
	return time.Duration(min(max(soonest, 0)*float64(time.Second), math.MaxInt64/2))
}

// ahead adds up what waits before a request like that of t. The caller holds the
// lock.
func (f *Fleet) ahead(t *Ticket) (requests, tokens float64) {
	for class := range t.Class + 1 {
		for o := range f.queue.lines[class].all() {
			if o.Request.Model == t.Request.Model {
				requests++
				tokens += float64(max(o.tokens, 0))
			}
		}
	}
	return requests, tokens
}

// clears estimates in how many seconds u has room for the request of t after so
// many others. The caller holds the lock.
func (f *Fleet) clears(u *upstream, t *Ticket, requests, tokens float64) float64 {
	q := &t.Options.Queue
	var seconds float64
	if q.MaxPrefillTokens > 0 {
		rate := u.meter.Rate()
		if rate == 0 {
			rate = unknownRate
		}
		own := min(max(t.tokens, 0), q.MaxPrefillTokens)
		seconds = (float64(u.prefill()) + tokens + float64(own-q.MaxPrefillTokens)) / rate
	}
	if q.MaxRequests > 0 {
		typical := max(f.ledger.Typical(), time.Second).Seconds()
		seconds = max(seconds, (float64(u.inFlight())+requests+1-float64(q.MaxRequests))*typical/float64(q.MaxRequests))
	}
	return seconds
}
