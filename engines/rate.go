// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"slices"
	"time"
)

// sampleTokens is from how many uncached tokens on a prefill tells something
// of an engine's speed rather than of its overhead: a step or half a step of
// most engines.
const sampleTokens = 4096

// sampleTime is how long a sample takes at least. The requests that an engine
// finishes in one step show their output at almost the same time: the tokens
// of the later ones were not computed in between.
const sampleTime = 50 * time.Millisecond

// How many samples are kept, and how many there have to be.
const (
	mostSamples  = 64
	leastSamples = 16
)

// Meter measures how fast an engine prefills, from nothing but what a router
// sees: when requests that wait for their prefill are sent, and when they show
// their first output. While at least one waits the engine is busy with prefill,
// and the uncached tokens of those that were served, over the time that it was,
// are a sample of its speed.
//
// Decode, a full KV cache and tokens that were believed to be cached and are
// not make a sample slower than the engine, and little makes it faster. So the
// rate is the upper quartile of the last samples, not their mean.
//
// The zero value has measured nothing.
type Meter struct {
	since  time.Time
	busy   bool
	tokens int

	// spoiled says that the first of those that wait may have been half done
	// at the beginning
	spoiled bool

	samples [mostSamples]float64
	count   int

	// upper and lower are the quartiles of the samples
	upper, lower float64
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
	m.tokens += tokens
	took := now.Sub(m.since)
	enough := m.tokens >= sampleTokens && took >= sampleTime
	switch {
	case m.spoiled:
	case enough:
		m.add(float64(m.tokens) / took.Seconds())
	case waiting > 0:
		return
	}
	m.restart(waiting, now)
}

// Assume notes that requests with so many uncached tokens are taken to be
// prefilled, and waiting how many still wait. Their tokens count with the next
// ones that are seen; where none waits, nothing was seen of when it was done.
func (m *Meter) Assume(tokens, waiting int, now time.Time) {
	m.tokens += tokens
	if waiting == 0 && m.busy {
		m.restart(waiting, now)
	}
}

// Spoil notes that a request stopped to wait in another way: nobody knows what
// the engine has done for it, nor for the next one that still waits.
func (m *Meter) Spoil(waiting int, now time.Time) {
	m.restart(waiting, now)
	m.spoiled = m.busy
}

func (m *Meter) restart(waiting int, now time.Time) {
	m.busy, m.since, m.tokens, m.spoiled = waiting > 0, now, 0, false
}

func (m *Meter) add(rate float64) {
	m.samples[m.count%mostSamples] = rate
	m.count++
	n := min(m.count, mostSamples)
	sorted := m.samples
	slices.Sort(sorted[:n])
	m.lower, m.upper = sorted[n/4], sorted[n-1-n/4]
}

// Rate returns the tokens that the engine prefills per second, 0 while too
// little was measured.
func (m *Meter) Rate() float64 {
	if m.count < leastSamples {
		return 0
	}
	return m.upper
}

// SafeRate returns a rate that the engine has kept in three of four samples, 0
// while too little was measured.
func (m *Meter) SafeRate() float64 {
	if m.count < leastSamples {
		return 0
	}
	return m.lower
}
