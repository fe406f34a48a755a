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
//
// One that has answered a scraper all the while has not come back, and it is
// broken in a way that its own word does not tell. Each trial is a request that
// fails, so it may take longer there, though never longer than it has been
// broken: what mends it is a restart, which a scraper sees.
const (
	leastPause   = time.Second
	mostPause    = 15 * time.Second
	mostAnswered = time.Minute
)

const (
	// remembered is about how many outcomes an upstream is judged by, and
	// outcomesFade how fast they are forgotten besides, by a factor of e.
	remembered   = 6
	outcomesFade = time.Minute

	// fewFailures is how many recent failures are no reason to cool down, for
	// a poisoned prompt makes one, and mostlyFails the share of failures that
	// is. It has to be at least twice that of the other upstreams: what fails
	// everywhere is not an upstream's fault.
	fewFailures = 1.5
	mostlyFails = 0.5

	// probedFor is how long after its last try a scraper is taken to be at
	// work.
	probedFor = 15 * time.Second

	// refusedFor is how long a refusal counts while no report comes, and
	// mostRefused how long where the upstream says when to come back.
	refusedFor  = 2 * time.Second
	mostRefused = time.Minute
)

// health is how dispatches to an upstream have ended lately. The zero value has
// nothing against it.
type health struct {
	record record

	// pause is how long the last cool-down was, 0 once a dispatch has
	// succeeded after it; it began at failed and ends at until
	pause         time.Duration
	failed, until time.Time

	// trial is the one request that tells whether the upstream has recovered,
	// which it has until trialEnds to do
	trial     *Placement
	trialEnds time.Time

	// tried and answered are when a scraper has last asked the upstream, and
	// when it has last had an answer; lost says that the last try had none.
	// watched is when one has last said that it would ask where there is need to
	tried, answered, watched time.Time
	lost                     bool

	// refused is when the upstream last had no room, and refuses until when it is
	// taken to have none; said says that it has said so itself
	refused, refusesUntil time.Time
	said                  bool
}

// fail notes a failed dispatch that was placed then, where those to the other
// upstreams came to good and bad.
func (h *health) fail(good, bad float64, placed, now time.Time) {
	h.record.add(0, 1, now)
	if now.Before(h.until) {
		return
	}
	if h.pause != 0 && !placed.After(h.failed) {
		// it is part of what the upstream has cooled down for
		return
	}
	myGood, myBad := h.record.at(now)
	mine, theirs := share(myBad, myGood), share(bad, good)
	if theirs > mine/2 {
		return
	}
	if h.pause == 0 && (myBad < fewFailures || mine < mostlyFails) {
		return
	}
	h.cool(now)
}

// cool begins a cool-down.
func (h *health) cool(now time.Time) {
	most := mostPause
	if h.answered.After(h.failed) && !h.lost && h.scraped(now) {
		most = mostAnswered
	}
	h.pause = min(max(2*h.pause, leastPause), most)
	h.failed, h.until = now, now.Add(h.pause)
	h.trial = nil
}

// succeed notes that a request which was placed then has shown output.
func (h *health) succeed(placed, now time.Time) {
	h.record.add(1, 0, now)
	if h.said && placed.After(h.refused) {
		h.said, h.refusesUntil = false, time.Time{}
	}
	if h.pause != 0 && placed.After(h.failed) {
		h.pause, h.until, h.trial = 0, time.Time{}, nil
	}
}

// cooling reports that the upstream is to be chosen last. After the pause it
// stays so until a scraper has had an answer, if one is at work, but no longer
// than another long pause, for what scrapers ask may fail by itself; and then
// for all but one request, until that one has succeeded or takes too long.
func (h *health) cooling(now time.Time) bool {
	switch {
	case h.pause == 0:
		return false
	case now.Before(h.until), h.tries(now):
		return true
	}
	return h.scraped(now) && h.awaited(now)
}

// scraped reports that a scraper is at work.
func (h *health) scraped(now time.Time) bool {
	return now.Sub(h.tried) < probedFor || now.Sub(h.watched) < probedFor
}

// awaited reports that an answer to a scraper would tell whether the upstream is
// back, and that there was none since it has failed, or none any more.
func (h *health) awaited(now time.Time) bool {
	gone := h.lost || !h.answered.After(h.failed)
	return h.pause != 0 && gone && now.Sub(h.until) < mostPause
}

// tries reports that a trial is under way.
func (h *health) tries(now time.Time) bool { return h.trial != nil && now.Before(h.trialEnds) }

// take makes p the trial of an upstream that has cooled down. One that shows
// nothing for the time given makes room for another.
func (h *health) take(p *Placement, within time.Duration, now time.Time) {
	if h.pause != 0 && !h.tries(now) {
		h.trial, h.trialEnds = p, now.Add(within)
	}
}

// leave ends the trial of p without a result.
func (h *health) leave(p *Placement) {
	if h.trial == p {
		h.trial = nil
	}
}

// probe notes that a scraper has asked the upstream, with or without an answer.
// One that answers again has come back, and its pause is over.
func (h *health) probe(ok bool, now time.Time) {
	if ok {
		h.answered = now
		if h.lost && now.Before(h.until) {
			h.until = now
		}
	}
	h.tried, h.lost = now, !ok
}

// watch notes that a scraper is at work that asks only where there is need to, and
// reports whether there is.
func (h *health) watch(now time.Time) (asks bool) {
	h.watched = now
	if h.pause == 0 {
		// what was asked the last time is of another cool-down
		h.lost = false
		return false
	}
	return now.Before(h.until) || h.awaited(now)
}

// refuse notes that the upstream had no room. Where it has said for how long, within
// reason, no report tells otherwise.
func (h *health) refuse(told time.Duration, now time.Time) {
	h.refused = now
	if !h.refuses(now) {
		h.said = false
	}
	until := now.Add(refusedFor)
	if told > 0 {
		until = now.Add(min(told, mostRefused))
		h.said = true
	}
	if until.After(h.refusesUntil) {
		h.refusesUntil = until
	}
}

// reported notes that a report has come, which tells whether there is room unless
// the upstream has said so itself.
func (h *health) reported() {
	if !h.said {
		h.refusesUntil = time.Time{}
	}
}

// refuses reports that the upstream is full by its own word.
func (h *health) refuses(now time.Time) bool { return now.Before(h.refusesUntil) }

// share is the part of bad in bad and good, 0 while there is neither.
func share(bad, good float64) float64 {
	if bad == 0 {
		return 0
	}
	return bad / (bad + good)
}

// record is what dispatches came to. Every outcome takes weight from those
// before it, so that one that breaks is found after a few failures however busy
// it has been, and time does the same where there is little traffic.
type record struct {
	good, bad float64
	noted     time.Time
}

func (r *record) at(now time.Time) (good, bad float64) {
	fade := math.Exp(-max(now.Sub(r.noted).Seconds(), 0) / outcomesFade.Seconds())
	return r.good * fade, r.bad * fade
}

func (r *record) add(good, bad float64, now time.Time) {
	const keep = 1 - 1.0/remembered
	wasGood, wasBad := r.at(now)
	r.good, r.bad, r.noted = keep*wasGood+good, keep*wasBad+bad, now
}
