// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"time"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/picker"
)

// placementStatus is the JSON form of a placement, in the words of the
// placeholders. It has nothing that a client has sent but the model's name. What
// is not known is left out.
type placementStatus struct {
	Time           time.Time `json:"time"`
	Reason         string    `json:"reason,omitempty"`
	Upstream       string    `json:"upstream,omitempty"`
	Waits          bool      `json:"waits,omitempty"`
	Model          string    `json:"model,omitempty"`
	Session        string    `json:"session,omitempty"`
	PromptTokens   int       `json:"prompt_tokens"`
	UncachedTokens int       `json:"uncached_tokens"`
	Attempt        int       `json:"attempt"`

	// Shadow is what would have been chosen where another policy has decided.
	Shadow *choiceStatus `json:"shadow,omitempty"`

	// FirstOutputMS is from the placement on. Cause is what has ended the
	// request, in the words of the releases.
	FirstOutputMS float64 `json:"first_output_ms,omitempty"`
	Cause         string  `json:"cause,omitempty"`

	Upstreams []appraisalStatus `json:"upstreams,omitzero"`
}

// choiceStatus is the JSON form of what would have been chosen.
type choiceStatus struct {
	Upstream       string `json:"upstream"`
	Reason         string `json:"reason"`
	UncachedTokens int    `json:"uncached_tokens"`
}

// appraisalStatus is the JSON form of what an upstream was worth to a placement.
type appraisalStatus struct {
	Upstream  string `json:"upstream"`
	State     string `json:"state"`
	Candidate bool   `json:"candidate"`
	NoRoom    bool   `json:"no_room,omitempty"`

	// Cost is the sum of the terms, in tokens.
	Cost  float64     `json:"cost"`
	Terms costsStatus `json:"terms"`

	RequestsInFlight  int     `json:"requests_in_flight"`
	RequestsWaiting   int     `json:"requests_waiting"`
	RequestsElsewhere float64 `json:"requests_elsewhere"`
	UncachedTokens    int     `json:"uncached_tokens"`
	CachedTokens      int     `json:"cached_tokens"`
	Speed             float64 `json:"speed"`

	// EvictsAfterSeconds is for how long nobody has used the block that would be
	// evicted next; none would be where it is missing.
	EvictsAfterSeconds *float64 `json:"evicts_after_seconds,omitempty"`
}

// costsStatus is the JSON form of the terms of a cost, in tokens.
type costsStatus struct {
	Load     float64 `json:"load"`
	Prefill  float64 `json:"prefill"`
	Uncached float64 `json:"uncached"`
	Eviction float64 `json:"eviction"`
	Delay    float64 `json:"delay"`
}

// recentPlacements describes the last n placements of a fleet, the last one
// first.
func recentPlacements(f *fleet.Fleet, n int) []placementStatus {
	return describeDecisions(f.Placements(n))
}

func describeDecisions(decisions []fleet.Decision) []placementStatus {
	list := make([]placementStatus, len(decisions))
	for i := range decisions {
		list[i] = describeDecision(&decisions[i])
	}
	return list
}

func describeDecision(d *fleet.Decision) placementStatus {
	s := placementStatus{
		Time:           d.Time,
		Reason:         d.Reason.String(),
		Upstream:       d.Upstream,
		Waits:          d.Waits,
		Model:          d.Model,
		Session:        shortSession(d.Session),
		PromptTokens:   d.PromptTokens,
		UncachedTokens: d.UncachedTokens,
		Attempt:        d.Attempt,
		FirstOutputMS:  d.FirstOutput.Seconds() * 1e3,
		Upstreams:      describeAppraisals(d.Appraisals),
	}
	if d.Upstream == "" && !d.Waits && d.Shadow.Upstream == "" {
		// nobody was chosen, so for no reason
		s.Reason = ""
	}
	if c := d.Shadow; c.Upstream != "" {
		s.Shadow = &choiceStatus{Upstream: c.Upstream, Reason: reasonOf(c), UncachedTokens: c.UncachedTokens}
	}
	if d.Ended {
		s.Cause = d.Cause.String()
	}
	return s
}

func describeAppraisals(appraisals []fleet.Appraisal) []appraisalStatus {
	list := make([]appraisalStatus, len(appraisals))
	for i := range appraisals {
		list[i] = describeAppraisal(&appraisals[i])
	}
	return list
}

func describeAppraisal(a *fleet.Appraisal) appraisalStatus {
	s := appraisalStatus{
		Upstream:          a.Upstream,
		State:             a.Standing,
		Candidate:         a.Candidate,
		NoRoom:            a.NoRoom,
		Cost:              a.Cost,
		Terms:             costsStatus(a.Terms),
		RequestsInFlight:  a.Requests,
		RequestsWaiting:   a.Waiting,
		RequestsElsewhere: a.Others,
		UncachedTokens:    a.Uncached,
		CachedTokens:      a.Cached,
		Speed:             a.Speed,
	}
	if a.Candidate && a.Age != picker.NeverEvicts {
		age := a.Age.Seconds()
		s.EvictsAfterSeconds = &age
	}
	return s
}
