// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// join puts t into the line, and reports that it is not waiting: it has been
// placed, or refused.
func (f *Fleet) join(t *Ticket, now time.Time) bool {
	t.wake = make(chan struct{}, 1)
	t.since, t.tokens, t.at = now, -1, -1
	f.mu.Lock()
	defer f.done(now)
	f.queue.lines[t.Class].add(t)
	f.queue.len++
	f.admit(now)
	q := &t.Options.Queue
	switch {
	case t.state != waits:
	case t.Waited >= q.MaxWait:
		f.refuse(t, RefusedTimeout, now)
	case f.queue.len > q.MaxWaiting:
		f.refuse(f.tooMany(t), RefusedFull, now)
	}
	return t.state != waits
}

// tooMany is who has to go now that t is one too many: the last of the line, so
// that neither batch work nor a single client keeps others out. One whose own
// policy lets as many wait as do stays, and t goes. The caller holds the lock.
func (f *Fleet) tooMany(t *Ticket) *Ticket {
	last := f.queue.lines[Batch].last()
	if last == nil {
		last = f.queue.lines[Interactive].last()
	}
	if last.Options.Queue.MaxWaiting >= f.queue.len {
		return t
	}
	return last
}

// look reports that t waits no longer. If it does, it looks for room first, if
// nobody has within the last while.
func (f *Fleet) look(t *Ticket, while time.Duration, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t.state == waits && now.Sub(f.queue.looked) >= while {
		f.queue.looked = now
		for _, u := range f.upstreams {
			f.letGo(u, t.Options.PrefillTTL, now)
		}
		f.admit(now)
	}
	return t.state != waits
}

// leave takes t out of the line, unless it has its place or was refused by now.
func (f *Fleet) leave(t *Ticket, r Refusal, now time.Time) {
	f.mu.Lock()
	defer f.done(now)
	if t.state == waits {
		f.refuse(t, r, now)
	}
}

// refuse takes t out of the line without a place. The caller holds the lock.
func (f *Fleet) refuse(t *Ticket, r Refusal, now time.Time) {
	f.drop(t, false)
	t.state, t.at = refused, -1
	t.Refusal, t.RetryAfter = r, f.outlook(t, now)
	f.queue.refused[r]++
	t.signal()
}

// drop takes t out of the line. The caller holds the lock.
func (f *Fleet) drop(t *Ticket, granted bool) {
	f.await(t, nil)
	f.queue.lines[t.Class].remove(t, granted)
	f.queue.len--
	if f.queue.lines[Batch].len() == 0 {
		f.queue.since = 0
	}
}

// glance makes the first in line look at the fleet, for a step that cannot tell
// the time. The caller holds the lock.
func (f *Fleet) glance() {
	for class := range f.queue.lines {
		for t := range f.queue.lines[class].all() {
			t.signal()
			return
		}
	}
}
