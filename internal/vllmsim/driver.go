// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"errors"
	"sync"
	"time"
)

// errGone says that the engine was restarted or closed under a request.
var errGone = errors.New("engine gone")

// maxLag is how far the driver may fall behind its schedule before it gives up catching up.
const maxLag = 20 * time.Millisecond

// driver runs an engine in real time. It is safe for concurrent use.
type driver struct {
	speed float64
	begun time.Time
	wake  chan struct{} // capacity 1
	done  chan struct{} // closed by close
	ended chan struct{} // closed when the goroutine has returned

	mu         sync.Mutex
	engine     *Engine
	calls      map[*Request]place
	clock      time.Duration // engine time
	shown      Stats         // as of the end of the last step, which is what /metrics tells
	generation int           // moves with each restart
	paused     bool
	closed     bool
}

// place says whose request it is: element i of the call.
type place struct {
	call *call
	i    int
}

// call is what one HTTP request asks of the engine: one request or more.
type call struct {
	requests []*Request
	signal   chan struct{} // capacity 1: there is news
	news     []progress    // guarded by driver.mu
	failed   bool          // guarded by driver.mu
	seen     []progress    // the caller's copy of news
}

// progress is how far a request had got at the end of the last step.
type progress struct {
	tokens, cached int
	shown, done    bool
}

// newDriver starts the goroutine that close ends.
func newDriver(cfg Config, speed float64) *driver {
	d := &driver{
		speed:  speed,
		begun:  time.Now(),
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		ended:  make(chan struct{}),
		engine: New(cfg),
		calls:  map[*Request]place{},
	}
	go d.run()
	return d
}

// close ends the goroutine and fails every call. It may be called more than once.
func (d *driver) close() {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.done)
	}
	d.mu.Unlock()
	<-d.ended
}

// outcome is a step that is computed and not shown yet.
type outcome struct {
	Result
	stats      Stats
	generation int
}

// run steps the engine while there is work.
func (d *driver) run() {
	defer close(d.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C

	due := time.Now()
	for {
		o := d.step()
		if o.Duration == 0 {
			select {
			case <-d.wake:
				due = time.Now()
				continue
			case <-d.done:
				return
			}
		}

		// timers are late by up to a millisecond, so a step is due relative to the one before and not to its end
		due = due.Add(time.Duration(float64(o.Duration) / d.speed))
		now := time.Now()
		if now.Sub(due) > maxLag {
			due = now
		}
		timer.Reset(due.Sub(now))
		select {
		case <-timer.C:
		case <-d.done:
			return
		}
		d.deliver(o)
	}
}

// step computes the next step.
func (d *driver) step() outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paused || d.engine.Idle() {
		return outcome{}
	}
	d.clock = max(d.clock, time.Duration(float64(time.Since(d.begun))*d.speed))
	result := d.engine.Step(d.clock)
	d.clock += result.Duration
	return outcome{result, d.engine.Stats(), d.generation}
}

// deliver shows a step to the calls and to the metrics.
func (d *driver) deliver(o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o.generation != d.generation {
		return
	}
	d.shown = o.stats
	for _, r := range o.First {
		d.tell(r, func(p *progress) { p.shown, p.cached = true, r.CachedTokens })
	}
	for _, r := range o.Tokens {
		d.tell(r, func(p *progress) { p.tokens++ })
	}
	for _, r := range o.Finished {
		d.tell(r, func(p *progress) { p.done = true })
		delete(d.calls, r)
	}
}

// tell changes the progress of a request, unless it was aborted during the step. The caller holds the lock.
func (d *driver) tell(r *Request, change func(*progress)) {
	if at, ok := d.calls[r]; ok {
		change(&at.call.news[at.i])
		at.call.notify()
	}
}
