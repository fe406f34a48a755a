// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"math"
	"time"
)

// A sample is cut when so many tokens were prefilled: about the tokens of one
// step of an engine, over which its speed can be told from its overhead.
const sampleTokens = 8192

// How much has to be measured before a rate is used, and how fast the past
// fades: a sample weighs half after about 70 others.
const (
	rateSamples = 16
	rateTokens  = 65_536
	rateFade    = 0.99
)

// Meter measures how fast an engine prefills, from nothing but what a router
// sees: when requests that wait for their prefill are sent, and when they show
// their first output. While at least one waits, the engine is busy with
// prefill; the uncached tokens of those that were served in that time, over the
// time, is its speed. It includes what decode takes from prefill, as it does
// for the requests to come.
//
// The zero value has measured nothing.
type Meter struct {
	since  time.Time
	busy   bool
	tokens float64
	fit    fit
}

// Begin notes that a request was sent, and waiting how many wait with it.
func (m *Meter) Begin(waiting int, now time.Time) {
	if waiting == 1 || !m.busy {
		m.restart(waiting, now)
	}
}

// Done notes that requests with so many uncached tokens were seen to be
// prefilled, and waiting how many still wait.
func (m *Meter) Done(tokens, waiting int, now time.Time) {
	if !m.busy {
		return
	}
	m.tokens += float64(tokens)
	if waiting > 0 && m.tokens < sampleTokens {
		return
	}
	if took := now.Sub(m.since).Seconds(); took > 0 && m.tokens > 0 {
		m.fit.add(m.tokens, took)
	}
	m.restart(waiting, now)
}

// Assume notes that requests with so many uncached tokens are taken to be
// prefilled, and waiting how many still wait. Their tokens count with the next
// ones that are seen; where none waits, nothing was seen of when it was done.
func (m *Meter) Assume(tokens, waiting int, now time.Time) {
	m.tokens += float64(tokens)
	if waiting == 0 && m.busy {
		m.restart(waiting, now)
	}
}

// Spoil notes that a request stopped to wait in another way: nobody knows what
// the engine has done for it.
func (m *Meter) Spoil(waiting int, now time.Time) { m.restart(waiting, now) }

func (m *Meter) restart(waiting int, now time.Time) {
	m.busy, m.since, m.tokens = waiting > 0, now, 0
}

// Rate returns the tokens that the engine prefills per second, and the time
// that a prefill takes however short it is. ok is false while too little was
// measured.
func (m *Meter) Rate() (tokens float64, fixed time.Duration, ok bool) { return m.fit.rate() }

// fit is a regression of seconds over tokens, in which the past fades.
type fit struct {
	samples         int
	total           float64
	n, x, y, xx, xy float64
}

func (f *fit) add(tokens, seconds float64) {
	f.samples = min(f.samples+1, rateSamples)
	f.total = min(f.total+tokens, rateTokens)
	for _, sum := range []*float64{&f.n, &f.x, &f.y, &f.xx, &f.xy} {
		*sum *= rateFade
	}
	f.n++
	f.x += tokens
	f.y += seconds
	f.xx += tokens * tokens
	f.xy += tokens * seconds
}

func (f *fit) rate() (tokens float64, fixed time.Duration, ok bool) {
	if f.samples < rateSamples || f.total < rateTokens {
		return 0, 0, false
	}
	spread := f.n*f.xx - f.x*f.x
	slope := (f.n*f.xy - f.x*f.y) / spread
	intercept := (f.y - slope*f.x) / f.n
	// samples of one length tell no fixed part, and noise may make it negative
	if !(spread > 0.01*f.x*f.x) || slope <= 0 || intercept < 0 {
		slope, intercept = f.y/f.x, 0
	}
	if !(slope > 0) || math.IsInf(slope, 0) {
		return 0, 0, false
	}
	return 1 / slope, time.Duration(intercept * float64(time.Second)), true
}
