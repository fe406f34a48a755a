// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// What an engine says of itself is in the metrics and in the admin view, in the
// same words, and what it does not say is in neither.
func TestReportsInView(t *testing.T) {
	host := simulated(t, vllmsim.ServerConfig{Models: []string{"base", "also"}})
	s := start(t, fmt.Sprintf(scraping, host.Addr(), "", "", ""))
	type report struct {
		State        string
		ScrapeErrors int `json:"scrape_errors"`
		Models       []string
		Engine       map[string]float64
	}
	view := func() (report, string) {
		var f struct{ Upstreams []report }
		_, text := s.get("/llm_loadaware/fleets/default")
		if err := json.Unmarshal([]byte(text), &f); err != nil || len(f.Upstreams) != 1 {
			t.Fatalf("%v: %s", err, text)
		}
		_, metrics := s.get("/metrics")
		return f.Upstreams[0], metrics
	}
	var last report
	becomes := func(what string, holds func(r report, metrics string) bool) {
		t.Helper()
		eventually(t, func() bool {
			var metrics string
			last, metrics = view()
			return holds(last, metrics)
		}, func() string { return fmt.Sprintf("view has not become that of %s: %+v", what, last) })
	}
	sample := func(metrics, name string) bool { return strings.Contains(metrics, "\ncaddy_llm_loadaware_"+name) }

	becomes("an idle engine", func(r report, metrics string) bool {
		return r.Engine["kv_tokens"] > 0 && len(r.Models) == 2 && sample(metrics, "engine_kv_usage{")
	})
	_, metrics := view()
	for _, name := range []string{"requests_running", "requests_waiting", "kv_usage"} {
		if value, ok := last.Engine[name]; !ok || value != 0 {
			t.Errorf("%s = %v, %v in the admin view, want 0", name, value, ok)
		}
		if got := exported(metrics, "engine_"+name); len(got) != 1 || got[host.Addr()] != 0 {
			t.Errorf("engine_%s = %v, want 0", name, got)
		}
	}
	if age, ok := last.Engine["age_seconds"]; !ok || age < 0 {
		t.Errorf("age_seconds = %v, %v", age, ok)
	}

	host.Server().SetFault(vllmsim.Fault{Sleep: true})
	becomes("a sleeping engine", func(r report, metrics string) bool {
		return r.State == "asleep" && sample(metrics, `upstream_state{fleet="default",state="asleep",upstream="`+host.Addr()+`"} 1`)
	})
	host.Server().SetFault(vllmsim.Fault{Metrics: vllmsim.MetricsError})
	errors := last.ScrapeErrors
	becomes("a broken engine", func(r report, _ string) bool { return r.ScrapeErrors > errors })
	if got := s.metric("scrape_errors_total"); got < float64(last.ScrapeErrors) {
		t.Errorf("scrape_errors_total = %v, want at least %d", got, last.ScrapeErrors)
	}
}
