// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

// scraper asks the upstreams of one policy about themselves, or only whether they
// are back where that is all it may ask, and gives the answers to the policy's
// fleet. It has one goroutine for each upstream, and one that follows a dynamic
// list.
type scraper struct {
	tasks

	// read-only from the start on
	config  *Metrics
	logger  *zap.Logger
	fleet   *fleet.Fleet
	owners  *scrapeOwners
	proxy   *reverseproxy.Handler
	listed  []string
	dynamic func() []string
	started uint64

	// asked has every upstream that is asked, with what ends that. Only start
	// and then follow touch it.
	asked map[string]context.CancelFunc
}

// newScraper returns the scraper of a policy, which does nothing yet.
func newScraper(ctx caddy.Context, p *LoadAwareSelection, proxy *reverseproxy.Handler) *scraper {
	return &scraper{
		config:  p.Metrics,
		logger:  p.logger,
		proxy:   proxy,
		listed:  p.listed,
		dynamic: p.lastResolved,
		tasks:   tasks{life: ctx},
		asked:   map[string]context.CancelFunc{},
	}
}

// lastResolved returns the upstreams of the last request.
func (p *LoadAwareSelection) lastResolved() []string {
	if last := p.pool.Load(); last != nil {
		return last.pool.Names()
	}
	return nil
}

// start begins to ask the upstreams. It is a no-op after the first call and
// after stop, and of a nil scraper.
func (s *scraper) start() {
	if s == nil {
		return
	}
	s.begin(func(ctx context.Context) {
		s.started = starts.Add(1)
		s.reconcile(ctx)
		if s.proxy.DynamicUpstreams != nil {
			s.running.Go(func() { s.guard(ctx, s.follow) })
		}
	})
}

// stop ends all questions and waits until nothing of the scraper runs. A nil
// scraper has nothing to stop.
func (s *scraper) stop() {
	if s != nil && s.end() {
		closeIdle(s.proxy.Transport)
	}
}

// closeIdle closes the connections that no request uses. Caddy does not do it
// for a transport that is not configured: each reload would leave one
// connection to every upstream behind until it is idle for two minutes.
func closeIdle(transport http.RoundTripper) {
	if t, ok := transport.(*reverseproxy.HTTPTransport); ok {
		transport = t.Transport
	}
	if t, ok := transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// follow keeps to a list of upstreams that changes. It looks for changes itself,
// so that no request has to tell.
func (s *scraper) follow(ctx context.Context) {
	tick := time.NewTicker(time.Duration(s.config.Interval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.reconcile(ctx)
		}
	}
}

// reconcile asks every upstream that is listed or was in the list of the last
// request, and no other.
func (s *scraper) reconcile(ctx context.Context) {
	wanted := map[string]struct{}{}
	for _, names := range [][]string{s.listed, s.dynamic()} {
		for _, name := range names {
			wanted[name] = struct{}{}
		}
	}
	for name, end := range s.asked {
		if _, ok := wanted[name]; !ok {
			delete(s.asked, name)
			end()
		}
	}
	for name := range wanted {
		if _, ok := s.asked[name]; !ok {
			s.asked[name] = s.ask(ctx, name)
		}
	}
}

// ask begins to ask an upstream, and returns the way to end that.
func (s *scraper) ask(ctx context.Context, name string) (end context.CancelFunc) {
	t, err := newScrapeTarget(s, name)
	if err != nil {
		if !s.config.Disabled {
			s.logger.Info("upstream is not scraped", zap.String("upstream", name), zap.Error(err))
		}
		return func() {}
	}
	ctx, end = context.WithCancel(ctx)
	s.running.Go(func() {
		defer t.claim.release()
		s.guard(ctx, t.run)
	})
	return end
}

// guard runs a task until it returns, which it does when ctx ends. If it panics,
// it begins anew a while later: no upstream's answer takes the server down.
func (s *scraper) guard(ctx context.Context, task func(context.Context)) {
	for !s.attempt(ctx, task) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rarely):
		}
	}
}

// attempt runs a task and reports whether it has returned.
func (s *scraper) attempt(ctx context.Context, task func(context.Context)) (returned bool) {
	defer logPanic(s.logger, "scraping engines")
	task(ctx)
	return true
}
