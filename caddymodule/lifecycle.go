// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
)

// prepareTasks prepares what the policy does beside the requests. That begins
// when the whole configuration runs. Provisioning is no sign of that: `caddy
// validate` does no more, and another module may yet fail.
func (p *LoadAwareSelection) prepareTasks(ctx caddy.Context) error {
	if p.proxy == nil {
		return nil
	}
	app, err := ctx.App("events")
	if err != nil {
		return fmt.Errorf("getting events app: %w", err)
	}
	events := app.(*caddyevents.App)
	if err := events.On("started", &lifeHandler{p.startTasks}); err != nil {
		// the proxy was made at run time, after the start
		p.logger.Warn("engines are not scraped, sessions not stored and the fleet not shared", zap.Error(err))
		return nil
	}
	if p.sharer, err = newSharer(ctx, p.Share, p.Fleet, p.logger); err != nil {
		return err
	}
	p.store = newSessionStore(ctx, p.Fleet, p.options.Sessions, p.logger)
	if err := events.On("stopping", &lifeHandler{func() { p.store.flush() }}); err != nil {
		return fmt.Errorf("subscribing to the end of the configuration: %w", err)
	}
	p.scraper = newScraper(ctx, p, p.proxy)
	return nil
}

func (p *LoadAwareSelection) startTasks() {
	p.lease.pooled().live.add(p)
	p.scraper.start()
	p.store.start()
	p.sharer.start()
}

// stopTasks ends what startTasks has begun, and waits for that.
func (p *LoadAwareSelection) stopTasks() {
	p.scraper.stop()
	p.store.stop()
	p.sharer.stop()
	p.lease.pooled().live.remove(p)
}

// lifeHandler is called at a moment in the life of a configuration. It has no
// exported fields because the events app logs it.
type lifeHandler struct{ do func() }

// Handle implements caddyevents.Handler.
func (h *lifeHandler) Handle(context.Context, caddy.Event) error {
	h.do()
	return nil
}

// Interface guards
var _ caddyevents.Handler = (*lifeHandler)(nil)
