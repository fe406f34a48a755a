// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
)

const (
	// Every is how often a router looks for something that others should hear
	// soon, see [fleet.Fleet.Pressing].
	Every = 20 * time.Millisecond

	// Unhurried is how long the rest waits at most: what a request gives back may
	// count for a moment longer than it is held, and most of it goes with the next
	// placement.
	Unhurried = 200 * time.Millisecond

	// Heartbeat is how often it tells what it holds though nothing is new. What
	// it holds counts for [fleet.PeerLifetime] each time.
	Heartbeat = time.Second

	// A medium that fails is tried again after a pause, which doubles each time.
	leastPause, mostPause = 50 * time.Millisecond, time.Second
)

// Link shares a fleet with those of other routers over a medium. A fleet has one
// link at a time, which needs [fleet.Fleet.Share].
type Link struct {
	fleet   *fleet.Fleet
	medium  Medium
	router  uint64
	changed func(err error)

	unreadable atomic.Uint64

	mu sync.Mutex

	// guarded by mu

	// errs are what sending and receiving fail with, and failing whether
	// changed was told of one
	errs    [2]error
	failing bool
}

// The ways of a medium that may fail.
const (
	sending = iota
	receiving
)

// NewLink returns the link of a fleet to a medium. router names this router among
// those that share the fleet, as a random number does, and may be that of a link of
// the same fleet that has ended. changed is called
// when the medium begins to fail, with what it fails with, and with nil once it
// works again. It may be nil, and is called with the link locked, by [Link.Tell] or
// [Link.Hear], which each run in a goroutine of their own.
func NewLink(f *fleet.Fleet, m Medium, router uint64, changed func(err error)) *Link {
	return &Link{fleet: f, medium: m, router: router, changed: changed}
}

// Unreadable counts messages that could not be read: routers of other versions
// have sent them.
func (l *Link) Unreadable() uint64 { return l.unreadable.Load() }

// Tell sends what is new until ctx is done. A message that could not be sent is sent again before
// more is asked for: what comes meanwhile is gathered by the fleet, within its
// bounds.
func (l *Link) Tell(ctx context.Context) {
	var news fleet.News
	var message []byte
	var told time.Time
	for wait, pause := Every, leastPause; sleep(ctx, wait); {
		if len(message) == 0 {
			now := time.Now()
			since := now.Sub(told)
			if since < Unhurried && !l.fleet.Pressing() || !l.fleet.News(&news, now) && since < Heartbeat {
				continue
			}
			told = now
			message = Encode(message, l.router, &news)
		}
		err := l.medium.Send(ctx, message)
		l.note(ctx, sending, err)
		if err != nil {
			wait, pause = pause, min(2*pause, mostPause)
			continue
		}
		message, wait, pause = message[:0], Every, leastPause
	}
}

// Hear takes in what others send until ctx is done.
func (l *Link) Hear(ctx context.Context) {
	var news fleet.News
	after, pause := "", leastPause
	for ctx.Err() == nil {
		batch, err := l.medium.Receive(ctx, after)
		l.note(ctx, receiving, err)
		if err != nil {
			sleep(ctx, pause)
			pause = min(2*pause, mostPause)
			continue
		}
		after, pause = batch.Next, leastPause
		for _, message := range batch.Messages {
			if ctx.Err() != nil {
				return
			}
			l.read(&message, &news, batch.Past)
		}
	}
}

// read takes one message in, unless it is the router's own.
func (l *Link) read(message *Message, news *fleet.News, past bool) {
	router, err := Decode(message.Data, news)
	switch {
	case err != nil:
		l.unreadable.Add(1)
		return
	case router == l.router:
		return
	case past:
		news.Serial, news.Loads, news.Age = 0, news.Loads[:0], message.Age
	}
	l.fleet.Hear(router, news, time.Now())
}

// note keeps what one way of the medium fails with, nil where it works, and says
// so where the medium as a whole has changed.
func (l *Link) note(ctx context.Context, way int, err error) {
	if ctx.Err() != nil {
		// it fails because the link ends
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs[way] = err
	failing := l.errs[sending] != nil || l.errs[receiving] != nil
	if failing == l.failing {
		return
	}
	l.failing = failing
	if l.changed != nil {
		l.changed(err)
	}
}

// sleep waits, and reports that ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
