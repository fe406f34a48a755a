// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/share"
	"github.com/caddy-llm/loadaware/share/redis"
)

// bearable is how long a medium may fail before that is said: what was told holds for
// longer.
const bearable = time.Second

// sharing is how a fleet is shared with other Caddys. Several policies may ask for
// that, when sites share a fleet and while a new configuration takes over from an
// old one. The one that has started last decides over what; where that changes
// nothing, the link goes on, so that a reload tells and misses nothing. Of one
// configuration only the last is asked: those before it may wish for something else
// at each reload.
type sharing struct {
	// mu is held while a link begins and ends. That waits for no answer: its
	// connections are closed.
	mu       sync.Mutex
	prepared []*sharer // to be started when their configuration runs
	started  []*sharer
	link     *runningLink

	// router is this Caddy's number in all links of the fleet, whose serials go on:
	// others take what a new link tells for newer, and do not count it beside what the
	// one before has told. It is 0 before the first.
	router uint64

	// not guarded by mu: what the metrics show, and where the link logs
	totals shareTotals
	logger atomic.Pointer[zap.Logger]
}

// sharer is a policy's wish to share its fleet.
type sharer struct {
	// read-only once it is prepared
	life     context.Context // its configuration's
	sharing  *sharing
	fleet    *fleet.Fleet
	options  redis.Options
	identity uint64
	logger   *zap.Logger

	// begun and ended are guarded by the lock of sharing
	begun, ended bool
}

// newSharer returns the sharer of the named fleet, nil where the policy has no such
// option. Nothing is connected.
func newSharer(life context.Context, s *Share, name string, logger *zap.Logger) (*sharer, error) {
	if s == nil {
		return nil, nil
	}
	if err := s.validate(); err != nil {
		return nil, err
	}
	options, identity, err := s.Redis.options(name)
	if err != nil {
		return nil, err
	}
	return &sharer{life: life, options: options, identity: identity, logger: logger.With(zap.String("fleet", name))}, nil
}

// prepare says what start shares, and that it will be called unless stop is. It is a
// no-op of a nil sharer.
func (s *sharer) prepare(f *fleet.Fleet, all *sharing) {
	if s == nil {
		return
	}
	s.fleet, s.sharing = f, all
	all.mu.Lock()
	defer all.mu.Unlock()
	all.prepared = append(all.prepared, s)
}

// start begins to share. It is a no-op after the first call and after stop, and of a
// nil sharer.
func (s *sharer) start() {
	if s == nil {
		return
	}
	all := s.sharing
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.begun || s.ended {
		return
	}
	s.begun = true
	all.prepared = without(all.prepared, s)
	all.started = append(all.started, s)
	if !slices.ContainsFunc(all.prepared, func(next *sharer) bool { return next.life.Done() == s.life.Done() }) {
		all.follow(s)
	}
}

// stop ends what start has begun, unless another policy goes on with it.
func (s *sharer) stop() {
	if s == nil {
		return
	}
	all := s.sharing
	all.mu.Lock()
	defer all.mu.Unlock()
	s.ended = true
	all.prepared = without(all.prepared, s)
	all.started = without(all.started, s)
	if n := len(all.started); n > 0 {
		all.follow(all.started[n-1])
	} else {
		all.end()
	}
}

// without takes s out of a list.
func without(list []*sharer, s *sharer) []*sharer {
	return slices.DeleteFunc(list, func(other *sharer) bool { return other == s })
}

// follow shares as a policy wishes. The caller holds the lock.
func (all *sharing) follow(s *sharer) {
	all.logger.Store(s.logger)
	if all.link == nil || all.link.identity != s.identity {
		all.end()
		all.begin(s)
	}
}

// end ends the link if there is one. The caller holds the lock.
func (all *sharing) end() {
	if all.link != nil {
		all.link.end()
		all.link = nil
		all.totals.linked(nil)
	}
}

// begin begins a link. The caller holds the lock, and there is none.
func (all *sharing) begin(s *sharer) {
	ctx, cancel := context.WithCancel(context.Background())
	stream := redis.Open(s.options)
	health := &shareHealth{sharing: all, ctx: ctx}
	for all.router == 0 {
		all.router = rand.Uint64()
	}
	l := share.NewLink(s.fleet, counted{stream, &all.totals}, all.router, health.changed)
	s.fleet.Share(true)
	all.totals.linked(l)
	r := &runningLink{identity: s.identity}
	for _, task := range []func(context.Context){l.Tell, l.Hear} {
		r.running.Go(func() { all.guard(ctx, task) })
	}
	r.end = func() {
		cancel()
		// what waits for an answer gets none
		_ = stream.Close()
		r.running.Wait()
		s.fleet.Share(false)
	}
	all.link = r
}

// guard tells or hears until ctx ends. If that panics, it begins anew a while later.
func (all *sharing) guard(ctx context.Context, task func(context.Context)) {
	for !all.attempt(ctx, task) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rarely):
		}
	}
}

// attempt runs a task and reports whether it has returned.
func (all *sharing) attempt(ctx context.Context, task func(context.Context)) (returned bool) {
	defer logPanic(all.logger.Load(), "sharing a fleet")
	task(ctx)
	return true
}

// runningLink is a link with the way to end it.
type runningLink struct {
	identity uint64
	running  sync.WaitGroup
	end      func()
}

// shareHealth tells of a link whether its medium works.
type shareHealth struct {
	sharing *sharing
	ctx     context.Context // the link's

	mu      sync.Mutex
	failing *time.Timer // nil while the medium works
	said    bool
}

// changed is called when the medium begins to fail, with what it fails with, and
// with nil when it works again.
func (h *shareHealth) changed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failing = time.AfterFunc(bearable, func() { h.say(err) })
		return
	}
	h.failing.Stop()
	h.failing = nil
	if h.said {
		h.said = false
		h.sharing.totals.failing.Store(false)
		h.sharing.logger.Load().Info("fleet is shared again")
	}
}

// say says that the medium fails, if it still does.
func (h *shareHealth) say(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing == nil || h.said || h.ctx.Err() != nil {
		return
	}
	h.said = true
	h.sharing.totals.failing.Store(true)
	h.sharing.logger.Load().Warn("fleet is not shared", zap.Error(err))
}
