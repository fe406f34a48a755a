// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// page reads /metrics.
func page(t *testing.T, h *Host) string {
	t.Helper()
	resp := mustSend(t, h, http.MethodGet, "/metrics", "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET /metrics = %d, %v", resp.StatusCode, err)
	}
	return string(text)
}

// series reads /metrics into values by series.
func series(t *testing.T, h *Host) map[string]string {
	t.Helper()
	values := map[string]string{}
	for line := range strings.Lines(page(t, h)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && !strings.HasPrefix(line, "#") {
			values[line[:i]] = line[i+1:]
		}
	}
	return values
}

func TestMetrics(t *testing.T) {
	h := newTestHost(t, ServerConfig{
		Models: []string{"big"}, EngineIndex: 3, MaxModelTokens: 640,
		Engine: Config{KVTokens: 640, BlockTokens: 32, MaxSeqs: 1},
	})
	prompt := strings.Repeat("4444", 100)
	for range 2 {
		call200(t, h, "/v1/completions", `{"prompt":"`+prompt+`","max_tokens":5}`)
	}
	const l = `engine="3",model_name="big"}`
	for name, want := range map[string]string{
		`vllm:num_requests_running{` + l: "0", `vllm:num_requests_waiting{` + l: "0",
		`vllm:kv_cache_usage_perc{` + l:        "0",
		`vllm:prefix_cache_queries_total{` + l: "200", `vllm:prefix_cache_hits_total{` + l: "96",
		`vllm:prompt_tokens_total{` + l: "200", `vllm:prompt_tokens_cached_total{` + l: "96",
		`vllm:prompt_tokens_by_source_total{source="local_compute",` + l:        "104",
		`vllm:prompt_tokens_by_source_total{source="local_cache_hit",` + l:      "96",
		`vllm:prompt_tokens_by_source_total{source="external_kv_transfer",` + l: "0",
		`vllm:generation_tokens_total{` + l:                                     "10", `vllm:num_preemptions_total{` + l: "0",
		`vllm:engine_sleep_state{sleep_state="awake",` + l: "1",
		`vllm:cache_config_info{block_size="32",cache_dtype="auto",enable_prefix_caching="True",engine="3",` +
			`gpu_memory_utilization="0.9",num_gpu_blocks="20"}`: "1.0",
	} {
		if got := series(t, h)[name]; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}

	// gauges while one request runs and the other waits for its place
	h.Server().SetFault(Fault{Slow: 50})
	for range 2 {
		_ = mustSend(t, h, http.MethodPost, "/v1/completions", `{"prompt":"`+prompt+`","max_tokens":200,"stream":true}`)
	}
	eventually(t, "a step shows both", func() bool {
		m := series(t, h)
		return m[`vllm:num_requests_running{`+l] == "1" && m[`vllm:num_requests_waiting{`+l] == "1" &&
			m[`vllm:kv_cache_usage_perc{`+l] >= "0.2" // 4 of 20 blocks, more as the answer grows
	})
}

func TestMetricsFaults(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	const tokens = `vllm:generation_tokens_total{engine="0",model_name="sim-model"}`
	call200(t, h, "/v1/completions", `{"prompt":"x","max_tokens":5}`)
	h.Server().SetFault(Fault{Metrics: MetricsFrozen})
	call200(t, h, "/v1/completions", `{"prompt":"x","max_tokens":5}`)
	h.Server().SetFault(Fault{Metrics: MetricsFrozen, Slow: 2})
	if got := series(t, h)[tokens]; got != "5" {
		t.Errorf("frozen: %s tokens, want 5", got)
	}
	h.Server().SetFault(Fault{Metrics: MetricsZeros})
	if got := series(t, h)[tokens]; got != "0" {
		t.Errorf("zeros: %s tokens, want 0", got)
	}
	h.Server().SetFault(Fault{Metrics: MetricsGarbage})
	if got := series(t, h)[tokens]; got != "" {
		t.Errorf("garbage: %s tokens, want none", got)
	}
	for fault, status := range map[MetricsFault]int{MetricsMissing: 404, MetricsError: 500} {
		h.Server().SetFault(Fault{Metrics: fault})
		if resp := mustSend(t, h, http.MethodGet, "/metrics", ""); resp.StatusCode != status {
			t.Errorf("%s: status %d, want %d", fault, resp.StatusCode, status)
		}
	}
	h.Server().SetFault(Fault{MetricsDelayMillis: 40})
	begin := time.Now()
	if got := series(t, h)[tokens]; got != "10" || time.Since(begin) < 40*time.Millisecond {
		t.Errorf("delayed: %s tokens after %v, want 10 after 40ms", got, time.Since(begin))
	}
}

func TestOldMetricNames(t *testing.T) {
	h := newTestHost(t, ServerConfig{OldMetricNames: true})
	for range 2 {
		call200(t, h, "/v1/completions", `{"prompt":"`+strings.Repeat("word", 100)+`","max_tokens":5}`)
	}
	const l = `{engine="0",model_name="sim-model"}`
	m := series(t, h)
	for name, want := range map[string]string{
		"vllm:gpu_cache_usage_perc":           "0",
		"vllm:gpu_prefix_cache_queries_total": "200",
		"vllm:gpu_prefix_cache_hits_total":    "96",
		"vllm:prompt_tokens_total":            "200",
		"vllm:generation_tokens_total":        "10",
		"vllm:num_requests_running":           "0",
		"vllm:kv_cache_usage_perc":            "",
		"vllm:prefix_cache_queries_total":     "",
		"vllm:prompt_tokens_cached_total":     "",
	} {
		if got := m[name+l]; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"by_source", "sleep_state"} {
		if strings.Contains(page(t, h), name) {
			t.Errorf("the page of an old server has %s", name)
		}
	}
}

func TestReport(t *testing.T) {
	h := newTestHost(t, ServerConfig{DataParallel: 2})
	const l = `{engine="1",model_name="sim-model"}`
	h.Server().SetFault(Fault{Report: Report{KVUsage: new(0.97), Running: new(3), Waiting: new(0)}})
	m := series(t, h)
	if m["vllm:kv_cache_usage_perc"+l] != "0.97" || m["vllm:num_requests_running"+l] != "3" || m["vllm:num_requests_waiting"+l] != "0" {
		t.Errorf("metrics %v, want what the report says", m)
	}
	if s := h.Server().Stats(); s != (Stats{}) {
		t.Errorf("Stats() = %+v, want the truth", s)
	}

	// a page that freezes has the lie of its time
	h.Server().SetFault(Fault{Metrics: MetricsFrozen, Report: Report{Running: new(9)}})
	if got := series(t, h)["vllm:num_requests_running"+l]; got != "3" {
		t.Errorf("frozen: %s running, want 3", got)
	}
	h.Server().SetFault(Fault{})
	if got := series(t, h)["vllm:num_requests_running"+l]; got != "0" {
		t.Errorf("repaired: %s running, want 0", got)
	}
	if status, _ := callJSON(t, h, http.MethodPost, "/sim/fault", `{"report":{"waiting":7}}`); status != 200 {
		t.Fatalf("POST /sim/fault = %d", status)
	}
	if got := series(t, h)["vllm:num_requests_waiting"+l]; got != "7" {
		t.Errorf("over HTTP: %s waiting, want 7", got)
	}
}
