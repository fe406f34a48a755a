// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
)

// shownPlacement is a placement as the admin endpoint shows it.
type shownPlacement struct {
	Reason         string  `json:"reason"`
	Upstream       string  `json:"upstream"`
	Waits          bool    `json:"waits"`
	Model          string  `json:"model"`
	Session        string  `json:"session"`
	PromptTokens   int     `json:"prompt_tokens"`
	UncachedTokens int     `json:"uncached_tokens"`
	Attempt        int     `json:"attempt"`
	FirstOutputMS  float64 `json:"first_output_ms"`
	Cause          string  `json:"cause"`

	Upstreams []struct {
		Upstream       string             `json:"upstream"`
		State          string             `json:"state"`
		Candidate      bool               `json:"candidate"`
		Cost           float64            `json:"cost"`
		Terms          map[string]float64 `json:"terms"`
		UncachedTokens int                `json:"uncached_tokens"`
		CachedTokens   int                `json:"cached_tokens"`
	} `json:"upstreams"`
}

// placements asks for placements, with a query.
func (s *server) placements(query string) (list []shownPlacement) {
	s.t.Helper()
	status, text := s.get("/llm_loadaware/fleets/default/placements" + query)
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		s.t.Fatalf("GET placements%s: status %d, %v: %s", query, status, err, text)
	}
	return list
}

// Where a request went and why is told by the costs of all upstreams, and nothing
// that a client has sent is shown.
func TestAdminPlacements(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	if status, text := s.get("/llm_loadaware/fleets/default/placements"); status != http.StatusOK || strings.TrimSpace(text) != "[]" {
		t.Errorf("GET placements before any: status %d: %s, want []", status, text)
	}
	var homes []string
	for range 3 {
		homes = append(homes, turn(t, s, upstreams, chat(words("secret", 600)), "X-Session-ID", "hidden").address())
	}
	list := s.placements("")
	if len(list) != 3 {
		t.Fatalf("%d placements, want 3: %+v", len(list), list)
	}
	for i, p := range list {
		want := "pinned"
		if i == 2 {
			want = "new"
		}
		if p.Reason != want || p.Upstream != homes[2-i] || p.Cause == "" || p.Attempt != 1 || p.Session == "" || len(p.Upstreams) != 3 {
			t.Errorf("placement %d = %+v, want %s at %s", i, p, want, homes[2-i])
		}
		for _, u := range p.Upstreams {
			sum := 0.0
			for _, term := range u.Terms {
				sum += term
			}
			if !u.Candidate || math.Abs(sum-u.Cost) > 1e-6*u.Cost || u.UncachedTokens+u.CachedTokens == 0 {
				t.Errorf("placement %d at %s: %+v, want a candidate whose terms add up to its cost", i, u.Upstream, u)
			}
			if warm := u.CachedTokens > 0; warm != (i < 2 && u.Upstream == homes[0]) {
				t.Errorf("placement %d: %d tokens cached at %s, and the home is %s", i, u.CachedTokens, u.Upstream, homes[0])
			}
		}
	}
	if one := s.placements("?limit=1"); len(one) != 1 || one[0].Reason != "pinned" {
		t.Errorf("the last placement = %+v, want one that is pinned", one)
	}
	if _, text := s.get("/llm_loadaware/fleets/default/placements"); strings.Contains(text, "secret") || strings.Contains(text, "hidden") {
		t.Errorf("placements show what the client has sent: %s", text)
	}
	for _, limit := range []string{"0", "-1", "x", "1.5"} {
		if status, text := s.get("/llm_loadaware/fleets/default/placements?limit=" + limit); status != http.StatusBadRequest || !strings.Contains(text, "limit") {
			t.Errorf("limit %s: status %d: %s, want 400", limit, status, text)
		}
	}
}
