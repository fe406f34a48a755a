// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// healthPath is where vLLM says that its engine runs.
	healthPath = "/health"

	// healthInterval is how often that is asked of an upstream that cools down.
	healthInterval = time.Second
)

// probes reports that the upstream's health is what tells when it is back: nobody
// asks it for metrics, or it has none.
func (t *scrapeTarget) probes() bool {
	return t.config.Disabled || t.metrics.condition == pageAbsent
}

// probe asks for the upstream's health while it cools down, if it is this policy's
// turn to. Any answer is one but that it is broken: a server without such a page
// answers all the same.
func (t *scrapeTarget) probe(ctx context.Context) {
	turn, own := t.claim.turn()
	if !own || !t.fleet.Watch(t.name, time.Now()) {
		return
	}
	_, err := t.fetch(ctx, &t.health, t.modelsAt)
	if ctx.Err() != nil {
		return
	}
	t.claim.deliver(turn, func() {
		t.fleet.Probed(t.name, err == nil || isSound(err), time.Now())
	})
	if c := t.logger.Check(zapcore.DebugLevel, "probed upstream that cools down"); c != nil {
		c.Write(zap.String("upstream", t.name), zap.Error(err))
	}
}

// leaveToHealth notes that a page does not exist. That tells nothing of whether the
// upstream is back, for its health is asked instead, and waited for from now on.
func (t *scrapeTarget) leaveToHealth(p *scrapePage, now time.Time) {
	if p == &t.metrics {
		t.fleet.Watch(t.name, now)
	}
}

// readHealth reads nothing: the status has said it all.
func readHealth(io.Reader) (func(time.Time, time.Duration), error) { return nil, nil }
