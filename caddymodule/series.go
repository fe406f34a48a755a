// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import "github.com/prometheus/client_golang/prometheus"

// descs are all series that the collector may export. newDesc adds to it.
var descs []*prometheus.Desc

// What this Caddy counts and believes.
var (
	requestsInFlight = newDesc("requests_in_flight",
		"Requests in flight on an upstream through this Caddy.")
	requestsWaiting = newDesc("requests_waiting",
		"Requests on an upstream that hold prefill tokens because they have shown no output yet.")
	prefillTokens = newDesc("prefill_tokens",
		"Uncached prompt tokens reserved on an upstream and not yet released.")
	peersRequests = newDesc("peers_requests_in_flight",
		"Requests in flight on an upstream through the other Caddys that share the fleet.")
	peersPrefill = newDesc("peers_prefill_tokens",
		"Uncached prompt tokens that the other Caddys which share the fleet have reserved on an upstream.")
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

// What the upstreams tell, and what follows from it.
var (
	upstreamState = newDesc("upstream_state",
		"1 for the state that an upstream is in, 0 for every other.", "state")
	requestsElsewhere = newDesc("requests_elsewhere",
		"Requests on an upstream that came neither through this Caddy nor through one that shares the fleet, 0 where that is not known.")
	engineRequestsRunning = newDesc("engine_requests_running",
		"Requests that an engine reports as running. Missing where it has not reported within the last minute.")
	engineRequestsWaiting = newDesc("engine_requests_waiting",
		"Requests that an engine reports as waiting. Missing where it has not reported within the last minute.")
	engineKVUsage = newDesc("engine_kv_usage",
		"Part of its KV cache that an engine reports as used, from 0 to 1. Missing where it has not reported within the last minute.")
	prefillRate = newDesc("prefill_rate_tokens",
		"Tokens that an upstream was measured to prefill per second. Missing where too few were measured.")
	prefixBelief = newDesc("prefix_belief",
		"Part of what is believed to be cached on an upstream that counts as cached, from 0 to 1, by how much was found so far.")
	promptTokensPredicted = newDesc("prompt_tokens_predicted_total",
		"Estimated prompt tokens of the requests on an upstream whose response has reported how many they were.")
	promptTokensReported = newDesc("prompt_tokens_reported_total",
		"Prompt tokens that responses of an upstream have reported.")
	cachedTokensPredicted = newDesc("cached_tokens_predicted_total",
		"Prompt tokens believed to be cached on an upstream, of the requests whose response has reported how many were.")
	cachedTokensReported = newDesc("cached_tokens_reported_total",
		"Prompt tokens that responses of an upstream have reported as cached.")
	scrapeErrors = newDesc("scrape_errors_total",
		"Reports of an upstream that could not be read.")
)

// Who waits for room on an upstream.
var (
	queueWaiting = newFleetDesc("queue_waiting",
		"Requests that wait for room on an upstream.", "class")
	queueRejected = newFleetDesc("queue_rejected_total",
		"Requests that had to wait for room and were not placed, by the cause.", "cause")
	queueWaitSeconds = newFleetDesc("queue_wait_seconds",
		"Time that requests waited which found no room, or others waiting, and were placed.")
)

// What would be otherwise where another policy decides.
var (
	shadowPlacements = newFleetDesc("shadow_placements_total",
		"Requests that another policy has placed, by whether they would have gone to the same upstream or to another one.", "choice")
	shadowPrefillTokens = newFleetDesc("shadow_prefill_tokens_total",
		"Uncached prompt tokens of requests that another policy has placed, which the upstream that would have been chosen would have saved, or of which it would have had more.", "difference")
	shadowCostTokens = newFleetDesc("shadow_cost_tokens_total",
		"Cost, in tokens, of requests that another policy has placed, which the upstream that would have been chosen would have saved, or of which it would have had more.", "difference")
)

// What other Caddys are told and tell, where the fleet is shared.
var (
	shareConnected = newFleetDesc("share_connected",
		"1 while the fleet is shared with other Caddys, 0 while that fails. Missing where it is not to be shared.")
	sharePeers = newFleetDesc("share_peers",
		"Other Caddys that share the fleet and were heard within three seconds.")
	shareSent = newFleetDesc("share_messages_sent_total",
		"Messages that other Caddys were told.")
	shareHeard = newFleetDesc("share_messages_heard_total",
		"Messages that were heard, those of this Caddy among them.")
	shareUnreadable = newFleetDesc("share_messages_unreadable_total",
		"Messages that were heard and not understood, as those of another version.")
	shareDropped = newFleetDesc("share_news_dropped_total",
		"Homes, prompts and responses that other Caddys were not told, as they were too many while nothing could be sent.")
	shareErrors = newFleetDesc("share_errors_total",
		"Tries to tell or to hear that have failed.")
)

// newFleetDesc describes a series of a whole fleet.
func newFleetDesc(name, help string, labels ...string) *prometheus.Desc {
	return describe(name, help, append([]string{"fleet"}, labels...))
}

// newDesc describes a series of an upstream.
func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return describe(name, help, append([]string{"fleet", "upstream"}, labels...))
}

func describe(name, help string, labels []string) *prometheus.Desc {
	desc := prometheus.NewDesc(prometheus.BuildFQName("caddy", "llm_loadaware", name), help, labels, nil)
	descs = append(descs, desc)
	return desc
}
