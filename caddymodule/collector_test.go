// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/fleet"
)

// newFleet is a fleet in use that lists upstreams. It goes with the test.
func newFleet(t *testing.T, upstreams ...string) *fleet.Fleet {
	t.Helper()
	l := &lease{name: t.Name()}
	f := l.acquire()
	t.Cleanup(l.release)
	f.List(upstreams)
	return f
}

// fullReport is one in which everything is known.
func fullReport() engines.Report {
	return engines.Report{
		Running: engines.Known(7), Waiting: engines.Known(2),
		KVUsage: engines.Known(0.97), KVTokens: engines.Known(600_000),
	}
}

// exportedLines are the gauges and counters with those names, without the
// fleet's label, in order.
func exportedLines(t *testing.T, names ...string) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), "caddy_llm_loadaware_")
		if !slices.Contains(names, name) {
			continue
		}
		for _, m := range family.GetMetric() {
			line := []string{name}
			for _, label := range m.GetLabel() {
				if label.GetName() != "fleet" {
					line = append(line, label.GetValue())
				}
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			lines = append(lines, strings.Join(append(line, fmt.Sprint(value)), " "))
		}
	}
	return strings.Join(lines, "\n")
}

func TestCollectReport(t *testing.T) {
	now := time.Now()
	f := newFleet(t, "full", "old", "silent", "part")
	f.Observe("full", fullReport(), now, time.Minute)
	f.Observe("old", fullReport(), now.Add(-2*time.Minute), 3*time.Second)
	f.Observe("part", engines.Report{Waiting: engines.Known(0)}, now, time.Minute)
	f.ScrapeFailed("silent")
	f.Drain("part", true)

	got := exportedLines(t, "engine_requests_running", "engine_requests_waiting", "engine_kv_usage",
		"requests_elsewhere", "scrape_errors_total", "prefill_rate_tokens")
	want := strings.Join([]string{
		`engine_kv_usage full 0.97`,
		`engine_requests_running full 7`,
		`engine_requests_waiting full 2`,
		`engine_requests_waiting part 0`,
		`requests_elsewhere full 9`,
		`requests_elsewhere old 0`,
		`requests_elsewhere part 0`,
		`requests_elsewhere silent 0`,
		`scrape_errors_total full 0`,
		`scrape_errors_total old 0`,
		`scrape_errors_total part 0`,
		`scrape_errors_total silent 1`,
	}, "\n")
	if got != want {
		t.Errorf("exported\n%s\nwant\n%s", got, want)
	}
	states := exportedLines(t, "upstream_state")
	for upstream, state := range map[string]string{"full": "full", "old": "available", "silent": "available", "part": "drained"} {
		for _, name := range fleet.States() {
			value := " 0"
			if name == state {
				value = " 1"
			}
			if line := "upstream_state " + name + " " + upstream + value; !strings.Contains(states, line) {
				t.Errorf("no %s in\n%s", line, states)
			}
		}
	}
}

// measure places streamed requests on the only upstream until its rate is known.
func measure(f *fleet.Fleet, upstream string, now time.Time) {
	o := fleet.DefaultOptions()
	pool := fleet.NewPool([]string{upstream})
	for range 32 {
		var p fleet.Placement
		f.Place(&p, &fleet.Request{Tokens: 10_000, Prefills: true}, pool, []int{0}, &o, now)
		now = now.Add(time.Second)
		p.FirstOutput(now)
		p.End(fleet.CauseEnd, now)
	}
}

func TestCollectRate(t *testing.T) {
	f := newFleet(t, "a")
	measure(f, "a", time.Now())
	if got, want := exportedLines(t, "prefill_rate_tokens"), `prefill_rate_tokens a 10000`; got != want {
		t.Errorf("exported %q, want %q", got, want)
	}
}

// The admin view has the words of the metrics and leaves out what is not known.
func TestStatus(t *testing.T) {
	now := time.Now()
	f := newFleet(t, "known", "other", "unknown")
	f.Observe("known", fullReport(), now, time.Minute)
	f.ObserveModels("known", []engines.Model{{ID: "m"}, {ID: "a"}}, now, time.Minute)
	f.ObserveModels("other", nil, now, time.Minute)
	f.ScrapeFailed("unknown")
	measure(f, "known", now)

	text, err := json.Marshal(describeFleet(namedFleet{"f", pooledFleet{Fleet: f, live: new(livePolicies)}}))
	if err != nil {
		t.Fatal(err)
	}
	var status struct{ Upstreams []map[string]any }
	if err := json.Unmarshal(text, &status); err != nil || len(status.Upstreams) != 3 {
		t.Fatalf("%v: %s", err, text)
	}
	check := func(u map[string]any, name, want string) {
		t.Helper()
		got := "none"
		if value, ok := u[name]; ok {
			encoded, _ := json.Marshal(value)
			got = string(encoded)
		}
		if got != want {
			t.Errorf("%s of %s = %s, want %s", name, u["upstream"], got, want)
		}
	}
	known, other, unknown := status.Upstreams[0], status.Upstreams[1], status.Upstreams[2]
	check(known, "state", `"full"`)
	check(known, "requests_elsewhere", "9")
	check(known, "prefill_rate_tokens", "10000")
	check(known, "models", `["a","m"]`)
	check(known, "scrape_errors", "0")
	engine, _ := known["engine"].(map[string]any)
	check(engine, "requests_running", "7")
	check(engine, "requests_waiting", "2")
	check(engine, "kv_usage", "0.97")
	check(engine, "kv_tokens", "600000")
	if age, _ := engine["age_seconds"].(float64); age <= 0 {
		t.Errorf("age_seconds = %v, want more than 0", engine["age_seconds"])
	}
	check(other, "models", "[]")
	check(unknown, "state", `"available"`)
	check(unknown, "scrape_errors", "1")
	for _, name := range []string{"engine", "models", "prefill_rate_tokens"} {
		check(unknown, name, "none")
	}
}

// Whoever builds a dashboard finds every series in the README, and only those.
func TestReadmeListsMetrics(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(caddy_llm_loadaware_\\w+)").FindAllStringSubmatch(string(readme), -1) {
		listed[m[1]] = true
	}
	for _, desc := range descs {
		name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(desc.String())[1]
		if !listed[name] {
			t.Errorf("README.md does not list %s", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("README.md lists %s, which is not exported", name)
	}
}
