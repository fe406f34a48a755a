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

	// doubtFor is how long an upstream that got no stream stays under
	// suspicion: one that is fine again must be found though a broken
	// connection holds a stream open that nothing will ever come of.
	doubtFor = 2 * time.Minute
)

// Progress notes that the engine has sent something of the response, which an
// engine that hangs does not. It takes no lock, and may be called for every
// byte.
func (p *Placement) Progress(now time.Time) {
	if p.upstream != nil && p.request.Prefills {
		p.upstream.progress.Store(now.UnixNano())
	}
}

// Blocked says that the response waits for its client to read, or does so no
// more: nothing can come of it then, whatever the engine does. Each call with
// true needs one with false. It takes no lock.
func (p *Placement) Blocked(on bool) {
	switch {
	case p.upstream == nil || !p.request.streams():
	case on:
		p.upstream.blocked.Add(1)
	default:
		p.upstream.blocked.Add(-1)
	}
}

// beginStream notes that a response which shows progress is to come. The caller
// holds the lock.
func (u *upstream) beginStream(now time.Time) {
	if u.streams == 0 {
		u.streaming = now
	}
	u.streams++
	u.lastStream = now
}

// allowance is how long the upstream may show nothing while tokens are to be
// prefilled before it can. The caller holds the lock.
func (u *upstream) allowance(tokens int) time.Duration {
	rate := u.meter.SafeRate()
	if rate == 0 {
		rate = unknownRate
	}
	return max(patience, time.Duration(slack*float64(tokens)/rate*float64(time.Second)))
}

// lastProgress is since when nothing has come of the streams. The caller holds
// the lock.
func (u *upstream) lastProgress() time.Time {
	last := time.Unix(0, u.progress.Load())
	if last.Before(u.streaming) {
		return u.streaming
	}
	return last
}

// silent reports that the upstream has streams, and has sent nothing on any of
// them for longer than the prefill of the oldest can take. A hanging engine
// looks like that: its /health stays well, and its headers come early. The
// caller holds the lock.
func (u *upstream) silent(now time.Time) bool {
	if u.streams <= int(u.blocked.Load()) {
		return false
	}
	last := u.lastProgress()
	if now.Sub(last) < patience {
		return false
	}
	due := last.Add(u.allowance(u.counters.Ahead()))
	if now.Before(due) {
		return false
	}
	if due.Before(u.lastStream) {
		due = u.lastStream
	}
	return now.Sub(due) < doubtFor
}

// doubt makes an upstream that hangs, as its silence says, cool down as one that
// has failed: once it is found, and again for each trial that shows nothing
// either. The caller holds the lock.
func (u *upstream) doubt(now time.Time) {
	h := &u.health
	found := h.failed.Before(u.lastProgress())
	again := h.failed.Before(u.lastStream) && now.Sub(u.lastStream) >= patience
	if (found || again) && !now.Before(h.until) {
		h.cool(now)
	}
}
