// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/fleet"
)

// metrics is the one collector of the process. It holds no numbers of its own:
// it reads the live fleets when it is scraped, so nothing is lost or reset by a
// reload, and an upstream that is gone has no stale series.
var metrics = collector{}

// registerMetrics registers the collector with the registry of a config. Every
// config has its own, and after a failed load the failed one's is served.
func registerMetrics(ctx caddy.Context) error {
	err := ctx.GetMetricsRegistry().Register(metrics)
	var registered prometheus.AlreadyRegisteredError
	if err != nil && !errors.As(err, &registered) {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// collector implements prometheus.Collector.
type collector struct{}

// reportShown is how long the gauges of an engine's last report are exported.
const reportShown = time.Minute

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, f := range listFleets() {
		view := f.View(now)
		collectQueue(ch, f.name, &view)
		collectShadow(ch, f.name, &view.Shadow)
		collectShare(ch, f.name, f.sharing.view(&view))
		for _, u := range view.Upstreams {
			// names of dynamic upstreams come from elsewhere
			name := strings.ToValidUTF8(u.Name, "\ufffd")
			e := exporter{ch: ch, fleet: f.name, upstream: name}
			e.load(&u)
			e.totals(&u.Totals)
			e.engine(&u, now)
		}
	}
}

// collectQueue writes the series of a fleet's queue.
func collectQueue(ch chan<- prometheus.Metric, name string, v *fleet.View) {
	for i, n := range v.QueueWaiting {
		ch <- prometheus.MustNewConstMetric(queueWaiting, prometheus.GaugeValue, float64(n), name, fleet.Class(i).String())
	}
	for i, n := range v.QueueRejected {
		ch <- prometheus.MustNewConstMetric(queueRejected, prometheus.CounterValue, float64(n), name, fleet.Refusal(i).String())
	}
	count, sum, buckets := v.QueueWait.Cumulative()
	ch <- prometheus.MustNewConstHistogram(queueWaitSeconds, count, sum, buckets, name)
}

// collectShare writes the series of a fleet that is shared. It takes nil for one
// that is not.
func collectShare(ch chan<- prometheus.Metric, name string, s *shareStatus) {
	if s == nil {
		return
	}
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	ch <- prometheus.MustNewConstMetric(shareConnected, prometheus.GaugeValue, connected, name)
	ch <- prometheus.MustNewConstMetric(sharePeers, prometheus.GaugeValue, float64(s.Peers), name)
	for _, total := range []struct {
		desc  *prometheus.Desc
		value uint64
	}{
		{shareSent, s.MessagesSent},
		{shareHeard, s.MessagesHeard},
		{shareUnreadable, s.MessagesUnreadable},
		{shareDropped, s.NewsDropped},
		{shareErrors, s.Errors},
	} {
		ch <- prometheus.MustNewConstMetric(total.desc, prometheus.CounterValue, float64(total.value), name)
	}
}

// exporter writes the series of one upstream.
type exporter struct {
	ch              chan<- prometheus.Metric
	fleet, upstream string
}

func (e *exporter) gauge(desc *prometheus.Desc, value float64, labels ...string) {
	e.metric(desc, prometheus.GaugeValue, value, labels)
}

func (e *exporter) counter(desc *prometheus.Desc, value uint64, labels ...string) {
	e.metric(desc, prometheus.CounterValue, float64(value), labels)
}

func (e *exporter) metric(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) {
	e.ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{e.fleet, e.upstream}, labels...)...)
}

// load writes what is on the upstream now.
func (e *exporter) load(u *fleet.UpstreamView) {
	e.gauge(requestsInFlight, float64(u.Requests))
	e.gauge(requestsWaiting, float64(u.Waiting))
	e.gauge(requestsElsewhere, u.Others)
	e.gauge(prefillTokens, float64(u.Prefill))
	e.gauge(peersRequests, float64(u.Peers.Requests))
	e.gauge(peersPrefill, float64(u.Peers.Prefill))
	e.gauge(sessionsPinned, float64(u.Sessions))
	e.gauge(prefixBlocks, float64(u.PrefixBlocks))
	for _, state := range fleet.States() {
		current := 0.0
		if state == u.State {
			current = 1
		}
		e.gauge(upstreamState, current, state)
	}
}

// totals writes what has added up.
func (e *exporter) totals(t *fleet.Totals) {
	e.counter(promptTokensEstimated, t.PromptTokens)
	e.counter(prefillTokensEstimated, t.PrefillTokens)
	e.counter(promptTokensPredicted, t.PromptPredicted)
	e.counter(promptTokensReported, t.PromptReported)
	e.counter(cachedTokensPredicted, t.CachedPredicted)
	e.counter(cachedTokensReported, t.CachedReported)
	e.counter(scrapeErrors, t.ScrapeErrors)
	for i, n := range t.Placements {
		e.counter(placements, n, fleet.Reason(i).String())
	}
	for i, n := range t.Releases {
		e.counter(releases, n, fleet.Cause(i).String())
	}
	count, sum, buckets := t.FirstOutput.Cumulative()
	e.ch <- prometheus.MustNewConstHistogram(firstOutputSeconds, count, sum, buckets, e.fleet, e.upstream)
}

// engine writes what the engine reports and what was measured of it, as far as
// that is known: a missing series is no 0.
func (e *exporter) engine(u *fleet.UpstreamView, now time.Time) {
	e.gauge(prefixBelief, u.Belief)
	if u.PrefillRate > 0 {
		e.gauge(prefillRate, u.PrefillRate)
	}
	if now.Sub(u.Reported) > reportShown {
		return
	}
	for _, reported := range []struct {
		desc   *prometheus.Desc
		number engines.Number
	}{
		{engineRequestsRunning, u.Report.Running},
		{engineRequestsWaiting, u.Report.Waiting},
		{engineKVUsage, u.Report.KVUsage},
	} {
		if reported.number.Known {
			e.gauge(reported.desc, reported.number.Value)
		}
	}
}

// Interface guards
var _ prometheus.Collector = collector{}
