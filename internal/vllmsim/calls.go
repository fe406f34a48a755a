// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "context"

// start submits requests that end together, unless the context has ended. The caller reads the call with next and ends
// it with abort.
func (d *driver) start(ctx context.Context, requests ...*Request) (*call, error) {
	c := &call{
		requests: requests,
		signal:   make(chan struct{}, 1),
		news:     make([]progress, len(requests)),
		seen:     make([]progress, len(requests)),
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// under the lock, so that no request of the process before a restart slips into the new one
	if d.closed || ctx.Err() != nil {
		return nil, errGone
	}
	for i, r := range requests {
		if err := d.engine.Submit(d.clock, r); err != nil {
			d.abortLocked(c)
			return nil, err
		}
		d.calls[r] = place{c, i}
	}
	d.rouse()
	return c, nil
}

// next waits for news and returns how far each request has got. The slice is valid until the next call. The error is
// that of the context, or errGone.
func (d *driver) next(ctx context.Context, c *call) ([]progress, error) {
	select {
	case <-c.signal:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.done:
		return nil, errGone
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if c.failed {
		return nil, errGone
	}
	copy(c.seen, c.news)
	return c.seen, nil
}

// abort takes back what has not ended. It is harmless afterwards.
func (d *driver) abort(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.abortLocked(c)
}

func (d *driver) abortLocked(c *call) {
	for _, r := range c.requests {
		if _, ok := d.calls[r]; ok {
			d.engine.Abort(r)
			delete(d.calls, r)
		}
	}
}

// restart fails every call and empties the engine.
func (d *driver) restart() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Restart()
	// not only what it failed: requests that finish with the step in progress have left the engine already
	for r, at := range d.calls {
		at.call.fail()
		delete(d.calls, r)
	}
	d.generation++
	d.shown = Stats{}
}

// with runs f while it holds the engine, and wakes the loop in case f made work or room.
func (d *driver) with(f func(*Engine)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.engine)
	d.rouse()
}

// pause stops the loop after the step in progress, or lets it go on.
func (d *driver) pause(paused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.paused = paused
	d.rouse()
}

// stats returns the engine's numbers as of the end of the last step.
func (d *driver) stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown
}

// rouse wakes the loop.
func (d *driver) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// notify says that there is news. The caller holds driver.mu.
func (c *call) notify() {
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

// fail ends a call. The caller holds driver.mu.
func (c *call) fail() {
	c.failed = true
	c.notify()
}
