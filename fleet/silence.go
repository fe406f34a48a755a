// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

const (
	// patience is how long an upstream may show nothing on any of its streams,
	// and slack how many times as long as its prefill is expected to take.
	patience = 15 * time.Second
	slack    = 5

	// unknownRate is the prefill rate in tokens per second that is assumed
	// while none was measured: that of a slow engine.
	unknownRate = 2000
)

// Progress notes that the engine has sent something of the response. It takes
// no lock, and may be called for every byte.
func (p *Placement) Progress(now time.Time) {
	if p.upstream != nil {
		p.upstream.progress.Store(now.UnixNano())
	}
}

// beginStream notes that a response which shows progress is to come. The caller
// holds the lock.
func (u *upstream) beginStream(now time.Time) {
	if u.streams == 0 {
		u.streaming = now
	}
	u.streams++
}

// silent reports that the upstream has streams, and has sent nothing on any of
// them for longer than its prefill can take. A hanging engine looks like that:
// its /health stays well, and its headers come early. The caller holds the lock.
func (u *upstream) silent(now time.Time) bool {
	if u.streams == 0 {
		return false
	}
	last := time.Unix(0, u.progress.Load())
	if last.Before(u.streaming) {
		last = u.streaming
	}
	quiet := now.Sub(last)
	if quiet < patience {
		return false
	}
	rate := u.meter.SafeRate()
	if rate == 0 {
		rate = unknownRate
	}
	expected := time.Duration(float64(u.counters.Prefill()) / rate * float64(time.Second))
	return quiet >= slack*expected
}

// suspect reports whether the upstream hangs, as its silence says, where any
// other one does not. Once found it cools down as one that fails. The caller
// holds the lock.
func (u *upstream) suspect(othersAnswer bool, now time.Time) bool {
	if !othersAnswer || !u.silent(now) {
		return false
	}
	if !now.Before(u.health.until) {
		u.health.cool(now)
	}
	return true
}
