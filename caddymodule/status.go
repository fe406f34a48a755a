// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/fleet"
)

// fleetStatus is the JSON form of a fleet, in the words of the metrics.
type fleetStatus struct {
	Name     string `json:"name"`
	Sessions int    `json:"sessions"`

	QueueWaiting  map[string]int    `json:"queue_waiting"`
	QueueRejected map[string]uint64 `json:"queue_rejected"`

	ShadowPlacements    map[string]uint64  `json:"shadow_placements"`
	ShadowPrefillTokens map[string]float64 `json:"shadow_prefill_tokens"`
	ShadowCostTokens    map[string]float64 `json:"shadow_cost_tokens"`

	// Share is left out where the fleet is not to be shared.
	Share *shareStatus `json:"share,omitempty"`

	Upstreams []upstreamStatus `json:"upstreams"`
	Policies  []policyStatus   `json:"policies,omitzero"`
}

// shareStatus is the JSON form of how a fleet is shared with other Caddys.
type shareStatus struct {
	Connected          bool   `json:"connected"`
	Peers              int    `json:"peers"`
	MessagesSent       uint64 `json:"messages_sent"`
	MessagesHeard      uint64 `json:"messages_heard"`
	MessagesUnreadable uint64 `json:"messages_unreadable"`
	NewsDropped        uint64 `json:"news_dropped"`
	Errors             uint64 `json:"errors"`
}

// upstreamStatus is the JSON form of an upstream. What is not known is left out.
type upstreamStatus struct {
	Upstream string `json:"upstream"`
	State    string `json:"state"`

	RequestsInFlight  int     `json:"requests_in_flight"`
	RequestsWaiting   int     `json:"requests_waiting"`
	RequestsElsewhere float64 `json:"requests_elsewhere"`
	PrefillTokens     int     `json:"prefill_tokens"`

	PeersRequestsInFlight int `json:"peers_requests_in_flight"`
	PeersPrefillTokens    int `json:"peers_prefill_tokens"`

	FailedLoad float64 `json:"failed_load"`

	Sessions             int     `json:"sessions"`
	PrefixBlocks         int     `json:"prefix_blocks"`
	PrefixBlocksCapacity int     `json:"prefix_blocks_capacity"`
	PrefixBelief         float64 `json:"prefix_belief"`

	// PrefillRateTokens is in tokens per second, Speed what it counts for
	// relative to the other upstreams.
	PrefillRateTokens float64 `json:"prefill_rate_tokens,omitempty"`
	Speed             float64 `json:"speed"`

	Engine *engineStatus `json:"engine,omitempty"`
	Models []string      `json:"models,omitzero"`

	PromptTokensEstimated  uint64            `json:"prompt_tokens_estimated"`
	PrefillTokensEstimated uint64            `json:"prefill_tokens_estimated"`
	PromptTokensPredicted  uint64            `json:"prompt_tokens_predicted"`
	PromptTokensReported   uint64            `json:"prompt_tokens_reported"`
	CachedTokensPredicted  uint64            `json:"cached_tokens_predicted"`
	CachedTokensReported   uint64            `json:"cached_tokens_reported"`
	ScrapeErrors           uint64            `json:"scrape_errors"`
	Placements             map[string]uint64 `json:"placements"`
	Releases               map[string]uint64 `json:"releases"`
}

// engineStatus is the JSON form of an engine's last report, however old.
type engineStatus struct {
	AgeSeconds      float64  `json:"age_seconds"`
	RequestsRunning *float64 `json:"requests_running,omitempty"`
	RequestsWaiting *float64 `json:"requests_waiting,omitempty"`
	KVUsage         *float64 `json:"kv_usage,omitempty"`
	KVTokens        *float64 `json:"kv_tokens,omitempty"`
}

// allFleets describes the fleets in use, by name.
func allFleets() []fleetStatus {
	list := []fleetStatus{}
	for _, f := range listFleets() {
		list = append(list, describeFleet(f))
	}
	slices.SortFunc(list, func(a, b fleetStatus) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func describeFleet(f namedFleet) fleetStatus {
	now := time.Now()
	view := f.View(now)
	status := describeView(f.name, &view, now)
	status.Share = f.sharing.view(&view)
	status.Policies = []policyStatus{}
	for _, p := range f.live.all() {
		status.Policies = append(status.Policies, describePolicy(p, now))
	}
	return status
}

// describeView describes what was copied from a fleet, without its policies.
func describeView(name string, view *fleet.View, now time.Time) fleetStatus {
	status := fleetStatus{
		Name:          name,
		Sessions:      view.Sessions,
		QueueWaiting:  make(map[string]int, fleet.Classes),
		QueueRejected: make(map[string]uint64, fleet.Refusals),
		Upstreams:     []upstreamStatus{},

		ShadowPlacements:    choicesOf(&view.Shadow),
		ShadowPrefillTokens: differencesOf(&view.Shadow.Prefill),
		ShadowCostTokens:    differencesOf(&view.Shadow.Cost),
	}
	for i, n := range view.QueueWaiting {
		status.QueueWaiting[fleet.Class(i).String()] = n
	}
	for i, n := range view.QueueRejected {
		status.QueueRejected[fleet.Refusal(i).String()] = n
	}
	for i := range view.Upstreams {
		status.Upstreams = append(status.Upstreams, describeUpstream(&view.Upstreams[i], now))
	}
	return status
}

func describeUpstream(u *fleet.UpstreamView, now time.Time) upstreamStatus {
	s := upstreamStatus{
		Upstream:               u.Name,
		State:                  u.State,
		RequestsInFlight:       u.Requests,
		RequestsWaiting:        u.Waiting,
		RequestsElsewhere:      u.Others,
		PrefillTokens:          u.Prefill,
		PeersRequestsInFlight:  u.Peers.Requests,
		PeersPrefillTokens:     u.Peers.Prefill,
		FailedLoad:             u.FailedLoad,
		Sessions:               u.Sessions,
		PrefixBlocks:           u.PrefixBlocks,
		PrefixBlocksCapacity:   u.PrefixCapacity,
		PrefixBelief:           u.Belief,
		PrefillRateTokens:      u.PrefillRate,
		Speed:                  u.Speed,
		Engine:                 describeEngine(u, now),
		Models:                 u.Models,
		PromptTokensEstimated:  u.Totals.PromptTokens,
		PrefillTokensEstimated: u.Totals.PrefillTokens,
		PromptTokensPredicted:  u.Totals.PromptPredicted,
		PromptTokensReported:   u.Totals.PromptReported,
		CachedTokensPredicted:  u.Totals.CachedPredicted,
		CachedTokensReported:   u.Totals.CachedReported,
		ScrapeErrors:           u.Totals.ScrapeErrors,
		Placements:             make(map[string]uint64, fleet.Reasons),
		Releases:               make(map[string]uint64, fleet.Causes),
	}
	for i, n := range u.Totals.Placements {
		s.Placements[fleet.Reason(i).String()] = n
	}
	for i, n := range u.Totals.Releases {
		s.Releases[fleet.Cause(i).String()] = n
	}
	return s
}

// describeEngine returns nil while the engine has not reported.
func describeEngine(u *fleet.UpstreamView, now time.Time) *engineStatus {
	if u.Reported.IsZero() {
		return nil
	}
	return &engineStatus{
		AgeSeconds:      now.Sub(u.Reported).Seconds(),
		RequestsRunning: known(u.Report.Running),
		RequestsWaiting: known(u.Report.Waiting),
		KVUsage:         known(u.Report.KVUsage),
		KVTokens:        known(u.Report.KVTokens),
	}
}

// known returns the value of a number, nil where it is not known.
func known(n engines.Number) *float64 {
	if !n.Known {
		return nil
	}
	return &n.Value
}
