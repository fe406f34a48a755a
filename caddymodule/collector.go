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

var (
	requestsInFlight = newDesc("requests_in_flight",
		"Requests in flight on an upstream through this Caddy.")
	requestsWaiting = newDesc("requests_waiting",
		"Requests on an upstream that hold prefill tokens because they have shown no output yet.")
	prefillTokens = newDesc("prefill_tokens",
		"Uncached prompt tokens reserved on an upstream and not yet released.")
	sessionsPinned = newDesc("sessions",
		"Sessions whose home is an upstream.")
	prefixBlocks = newDesc("prefix_blocks",
		"Prompt blocks of 256 tokens that an upstream is believed to have cached.")
	promptTokensEstimated = newDesc("prompt_tokens_estimated_total",
		"Estimated prompt tokens of the requests placed on an upstream.")
	prefillTokensEstimated = newDesc("prefill_tokens_estimated_total",
		"Estimated prompt tokens placed on an upstream that it was not believed to have cached.")
	placements = newDesc("placements_total",
		"Placed requests with a prompt, by the reason of the choice.", "reason")
	releases = newDesc("releases_total",
		"Placed requests that gave their prefill tokens back, by the cause.", "cause")
	firstOutputSeconds = newDesc("first_output_seconds",
		"Time from placement to first output of streamed responses.")
)

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("caddy", "llm_loadaware", name), help,
		append([]string{"fleet", "upstream"}, labels...), nil)
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		requestsInFlight, requestsWaiting, prefillTokens, sessionsPinned, prefixBlocks,
		promptTokensEstimated, prefillTokensEstimated, placements, releases, firstOutputSeconds,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, f := range listFleets() {
		for _, u := range f.fleet.View(now).Upstreams {
			// names of dynamic upstreams come from elsewhere
			u.Name = strings.ToValidUTF8(u.Name, "\ufffd")
			collectUpstream(ch, f.name, &u)
		}
	}
}

func collectUpstream(ch chan<- prometheus.Metric, fleetName string, u *fleet.UpstreamView) {
	gauge := func(desc *prometheus.Desc, value int) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), fleetName, u.Name)
	}
	counter := func(desc *prometheus.Desc, value uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(value),
			append([]string{fleetName, u.Name}, labels...)...)
	}
	gauge(requestsInFlight, u.Requests)
	gauge(requestsWaiting, u.Waiting)
	gauge(prefillTokens, u.Prefill)
	gauge(sessionsPinned, u.Sessions)
	gauge(prefixBlocks, u.PrefixBlocks)
	counter(promptTokensEstimated, u.Totals.PromptTokens)
	counter(prefillTokensEstimated, u.Totals.PrefillTokens)
	for i, n := range u.Totals.Placements {
		counter(placements, n, fleet.Reason(i).String())
	}
	for i, n := range u.Totals.Releases {
		counter(releases, n, fleet.Cause(i).String())
	}
	count, sum, buckets := u.Totals.FirstOutput.Cumulative()
	ch <- prometheus.MustNewConstHistogram(firstOutputSeconds, count, sum, buckets, fleetName, u.Name)
}

// Interface guards
var _ prometheus.Collector = collector{}
