// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"
)

// How long an upstream cools down: twice as long each time that it fails
// again. A client's retries go on for about half a minute, and an engine that
// has come back is to be found within that.
const (
	leastPause = time.Second
	mostPause  = 15 * time.Second
)

const (
	// outcomesFade is how fast outcomes are forgotten, by a factor of e.
	outcomesFade = 10 * time.Second

	// fewFailures is how many recent failures are no reason to cool down, for
	// a poisoned prompt makes one, and mostlyFails the share of failures that
	// is. It has to be at least twice that of the other upstreams: what fails
	// everywhere is not an upstream's fault.
	fewFailures = 1.5
	mostlyFails = 0.5

	// probedFor is how long after its last try a scraper is taken to be at
	// work, and refusedFor how long a refusal counts while no report comes.
	probedFor  = 15 * time.Second
	refusedFor = 2 * time.Second
)

// health is how dispatches to an upstream have ended lately. The zero value has
// nothing against it.
type health struct {
	good, bad fading

	// pause is how long the last cool-down was, 0 once a dispatch has
	// succeeded after it; it began at failed and ends at until
	pause         time.Duration
	failed, until time.Time

	// trial is the one request that tells whether the upstream has recovered
	trial *Placement

	// tried and answered are when a scraper has last asked the upstream, and
	// when it has last had an answer
	tried, answered time.Time

	// refused is when the upstream last had no room, zero once a report has
	// come
	refused time.Time
}

// fail notes a failed dispatch, where those to the other upstreams came to good
// and bad.
func (h *health) fail(good, bad float64, now time.Time) {
	h.bad.add(now)
	if now.Before(h.until) {
		return
	}
	if h.pause == 0 {
		mine, theirs := share(h.bad.at(now), h.good.at(now)), share(bad, good)
		if h.bad.at(now) < fewFailures || mine < mostlyFails || theirs > mine/2 {
			return
		}
	}
	h.cool(now)
}

// cool begins a cool-down.
func (h *health) cool(now time.Time) {
	h.pause = min(max(2*h.pause, leastPause), mostPause)
	h.failed, h.until = now, now.Add(h.pause)
	h.trial = nil
}

// succeed notes that a request which was placed then has shown output.
func (h *health) succeed(placed, now time.Time) {
	h.good.add(now)
	if h.pause != 0 && placed.After(h.failed) {
		h.pause, h.until, h.trial = 0, time.Time{}, nil
	}
}

// cooling reports that the upstream is to be chosen last. After the pause it
// stays so until a scraper has had an answer, if one is at work, but no longer
// than another long pause, for what scrapers ask may fail by itself; and then
// for all but one request, until that one has succeeded.
func (h *health) cooling(now time.Time) bool {
	switch {
	case h.pause == 0:
		return false
	case now.Before(h.until), h.trial != nil:
		return true
	}
	probed := now.Sub(h.tried) < probedFor
	return probed && !h.answered.After(h.failed) && now.Sub(h.until) < mostPause
}

// take makes p the trial of an upstream that has cooled down.
func (h *health) take(p *Placement) {
	if h.pause != 0 && h.trial == nil {
		h.trial = p
	}
}

// leave ends the trial of p without a result.
func (h *health) leave(p *Placement) {
	if h.trial == p {
		h.trial = nil
	}
}

// probe notes that a scraper has asked the upstream, with or without an answer.
func (h *health) probe(ok bool, now time.Time) {
	h.tried = now
	if ok {
		h.answered = now
	}
}

// refuse notes that the upstream had no room.
func (h *health) refuse(now time.Time) { h.refused = now }

// refuses reports that the upstream is full by its own word.
func (h *health) refuses(now time.Time) bool {
	return !h.refused.IsZero() && now.Sub(h.refused) < refusedFor
}

// share is the part of bad in bad and good, 0 while there is neither.
func share(bad, good float64) float64 {
	if bad == 0 {
		return 0
	}
	return bad / (bad + good)
}

// fading is a count in which the past fades.
type fading struct {
	amount float64
	noted  time.Time
}

func (f *fading) at(now time.Time) float64 {
	return f.amount * math.Exp(-max(now.Sub(f.noted).Seconds(), 0)/outcomesFade.Seconds())
}

func (f *fading) add(now time.Time) { f.amount, f.noted = f.at(now)+1, now }
