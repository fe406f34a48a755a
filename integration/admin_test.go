// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
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
			r, err := http.NewRequest(method, "http://"+s.admin+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: status %d, want 405", method, path, res.StatusCode)
			}
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
