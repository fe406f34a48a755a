// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const (
	// modelsPath is where vLLM lists its models, and modelsInterval how often
	// it is asked: a new one is known within 15 seconds.
	modelsPath     = "/v1/models"
	modelsInterval = 10 * time.Second

	// rarely is how often an upstream is asked that has no such page.
	rarely = time.Minute
)

// condition is what is known of a page.
type condition uint8

const (
	// the zero value: nothing is known yet
	_ condition = iota
	// pageRead is one that can be read.
	pageRead
	// pageAbsent is one that does not exist, or says nothing of an engine.
	pageAbsent
	// pageFailing is one that cannot be read.
	pageFailing
)

// scrapePage is one of the pages that an upstream is asked for.
type scrapePage struct {
	path, accept string

	// interval is the time between two questions, and valid how long an answer
	// is believed
	interval, valid time.Duration

	// read reads the page and returns what gives it to the fleet
	read pageReader

	// what became of it: lost says that the last question had no answer, and
	// until how long the last answer of use is believed
	condition condition
	lost      bool
	until     time.Time
}

// scrapeTarget is an upstream that is asked. Its goroutine alone touches it.
type scrapeTarget struct {
	*scraper
	name  string
	claim *scrapeClaim

	metrics, models     scrapePage
	health              scrapePage
	metricsAt, modelsAt address
}

// newScrapeTarget returns the target for an upstream, and claims it.
func newScrapeTarget(s *scraper, name string) (*scrapeTarget, error) {
	at, err := parseAddress(name)
	if err != nil {
		return nil, err
	}
	t := &scrapeTarget{scraper: s, name: name, metricsAt: at.withPort(s.config.Port), modelsAt: at}
	interval := time.Duration(s.config.Interval)
	t.metrics = scrapePage{
		path: s.config.Path, accept: "text/plain", read: t.readMetrics,
		interval: interval, valid: t.validity(interval),
	}
	t.models = scrapePage{
		path: modelsPath, accept: "application/json", read: t.readModels,
		interval: modelsInterval, valid: t.validity(modelsInterval),
	}
	t.health = scrapePage{
		path: healthPath, accept: "*/*", read: readHealth,
		interval: healthInterval,
	}
	t.claim = s.owners.claim(name, s.started)
	return t, nil
}

// validity is how long an answer is believed: one that is lost, or late by the
// timeout, changes nothing.
func (t *scrapeTarget) validity(interval time.Duration) time.Duration {
	return max(3*interval, interval+time.Duration(t.config.Timeout))
}

// run asks for one page at a time until ctx ends. It begins at any moment of an
// interval, so that many upstreams are not asked at the same one. Where the
// questions are turned off only the health of an upstream that cools down is left.
func (t *scrapeTarget) run(ctx context.Context) {
	metrics := time.NewTimer(rand.N(t.metrics.interval))
	defer metrics.Stop()
	models := time.NewTimer(rand.N(t.metrics.interval))
	defer models.Stop()
	health := time.NewTimer(rand.N(t.health.interval))
	defer health.Stop()
	if t.config.Disabled {
		metrics.Stop()
		models.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-metrics.C:
			t.ask(ctx, &t.metrics, t.metricsAt)
			metrics.Reset(t.metrics.pause())
		case <-models.C:
			t.ask(ctx, &t.models, t.modelsAt)
			models.Reset(t.models.pause())
		case <-health.C:
			if t.probes() {
				t.probe(ctx)
			}
			health.Reset(t.health.pause())
		}
	}
}

// pause returns the time to the next question, give or take a tenth.
func (p *scrapePage) pause() time.Duration {
	pause := p.interval
	if p.condition == pageAbsent {
		pause = max(pause, rarely)
	}
	return pause - pause/10 + rand.N(pause/5)
}

// ask asks for a page if it is this policy's turn to.
func (t *scrapeTarget) ask(ctx context.Context, p *scrapePage, at address) {
	turn, own := t.claim.turn()
	if !own {
		return
	}
	give, err := t.fetch(ctx, p, at)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	p.lost = err != nil && !isAnswer(err)
	t.claim.deliver(turn, func() {
		if isAbsent(err) {
			t.leaveToHealth(p, now)
		} else {
			t.fleet.Probed(t.name, err == nil || isSound(err), now)
		}
		switch {
		case err == nil:
			give(now, p.valid)
		case p == &t.metrics || !isAbsent(err):
			t.fleet.ScrapeFailed(t.name)
		}
	})
	if err == nil {
		t.succeeded(p, now)
	} else {
		t.failed(p, err, now)
	}
}

func (t *scrapeTarget) succeeded(p *scrapePage, now time.Time) {
	p.until = now.Add(p.valid)
	before := p.condition
	p.condition = pageRead
	switch before {
	case pageFailing:
		t.log(zapcore.InfoLevel, "engine can be scraped again", p)
	case pageAbsent:
		t.log(t.absentLevel(p), "engine can be scraped again", p)
	}
}

// failed says what is wrong with a page once nothing of it is believed any
// more, and then not again while it stays so.
func (t *scrapeTarget) failed(p *scrapePage, err error, now time.Time) {
	next := pageFailing
	if isAbsent(err) {
		next = pageAbsent
	}
	if p.condition == next || now.Before(p.until) {
		return
	}
	// where nothing answers at all, the metrics are enough to say it
	if p == &t.models && p.lost && (t.metrics.lost || t.metrics.condition != pageRead) {
		return
	}
	p.condition = next
	if next == pageAbsent {
		t.log(t.absentLevel(p), "engine has nothing to scrape", p, zap.Error(err))
		return
	}
	t.log(zapcore.WarnLevel, "engine cannot be scraped", p, zap.Error(err))
}

// absentLevel is how loud it is said that a page does not exist: a server that
// does not list its models is none to wonder about.
func (t *scrapeTarget) absentLevel(p *scrapePage) zapcore.Level {
	if p == &t.models {
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}

func (t *scrapeTarget) log(level zapcore.Level, message string, p *scrapePage, fields ...zap.Field) {
	t.logger.Log(level, message, append(fields, zap.String("upstream", t.name), zap.String("page", p.path))...)
}
