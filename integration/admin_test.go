// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestAdminView(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	turn(t, s, upstreams, chat(words("hello", 600)), "X-Session-ID", "a session")

	status, text := s.get("/llm_loadaware/fleets")
	var list []fleetStatus
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != http.StatusOK {
		t.Fatalf("GET fleets: status %d, %v: %s", status, err, text)
	}
	if len(list) != 1 || list[0].Name != "default" || len(list[0].Upstreams) != 2 || list[0].Sessions != 1 {
		t.Errorf("GET fleets = %+v, want the default fleet with 2 upstreams and 1 session", list)
	}
	one := s.fleet()
	if sums := one.total(); sums.Sessions != 1 || sums.Placements["new"] != 1 || sums.Releases["first_output"] != 1 {
		t.Errorf("GET fleet = %+v, want one session, placed as new and released by its first output", one)
	}
	if status, _ := s.get("/llm_loadaware/fleets/default/"); status != http.StatusOK {
		t.Errorf("GET fleet with a trailing slash: status %d, want 200", status)
	}
}

func TestAdminRefuses(t *testing.T) {
	s := start(t, fmt.Sprintf(burstConfig, "127.0.0.1:1"))
	if status, text := s.get("/llm_loadaware/fleets/other"); status != http.StatusNotFound || !strings.Contains(text, "fleet not found: other") {
		t.Errorf("unknown fleet: status %d: %s", status, text)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		for _, path := range []string{"/llm_loadaware/fleets", "/llm_loadaware/fleets/default"} {
			if status, _ := s.ask(method, path); status != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: status %d, want 405", method, path, status)
			}
		}
	}
}

// A fleet may have any name. One that looks like a part of the path is found by
// its escaped form.
func TestAdminFleetNames(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	names := []string{"a/b", "drain", "x/drain", "x", "50%", "a b", "a//b/", "..", "ü?#"}
	var config strings.Builder
	for i, name := range names {
		fmt.Fprintf(&config, "handle /%d {\nreverse_proxy %s {\nlb_policy llm_loadaware {\nfleet %q\n}\n}\n}\n", i, up.address(), name)
	}
	s := start(t, "{site0} {\n"+config.String()+"}\n")
	drain := "/drain?upstream=" + up.address()
	for _, name := range names {
		path := "/llm_loadaware/fleets/" + strings.ReplaceAll(url.PathEscape(name), "..", "%2E%2E")
		var f fleetStatus
		status, text := s.get(path)
		if err := json.Unmarshal([]byte(text), &f); err != nil || status != http.StatusOK || f.Name != name {
			t.Errorf("GET %s: status %d: %s, want fleet %s", path, status, text, name)
			continue
		}
		for method, state := range map[string]string{http.MethodPost: "drained", http.MethodDelete: "available"} {
			if status, text := s.ask(method, path+drain); status != http.StatusOK || text != "" {
				t.Errorf("%s %s: status %d: %s", method, path+drain, status, text)
			}
			if _, text := s.get(path); !strings.Contains(text, fmt.Sprintf(`"state":%q`, state)) {
				t.Errorf("after %s %s: %s, want state %s", method, path+drain, text, state)
			}
		}
	}
	for path, want := range map[string]int{
		"/llm_loadaware/fleets/a/b":     http.StatusOK,
		"/llm_loadaware/fleets/a/b/":    http.StatusOK,
		"/llm_loadaware/fleets/drain":   http.StatusOK,
		"/llm_loadaware/fleets/x/drain": http.StatusMethodNotAllowed,
		"/llm_loadaware/fleets/%2Fx":    http.StatusNotFound,
	} {
		if status, text := s.get(path); status != want {
			t.Errorf("GET %s: status %d: %s, want %d", path, status, text, want)
		}
	}
}

// Lists are lists also when they are empty.
func TestAdminWithoutFleets(t *testing.T) {
	s := start(t, "{site0} {\n\trespond ok\n}\n")
	if status, text := s.get("/llm_loadaware/fleets"); status != http.StatusOK || strings.TrimSpace(text) != "[]" {
		t.Errorf("GET fleets without any: status %d: %s, want []", status, text)
	}
}
