// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// metrics serves GET /metrics.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	f := s.Fault()
	pause(r.Context(), f.MetricsDelayMillis)
	var page string
	switch f.Metrics {
	case MetricsMissing:
		writeJSON(w, http.StatusNotFound, object{"detail": "Not Found"})
		return
	case MetricsError:
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	case MetricsFrozen:
		s.mu.Lock()
		page = s.frozen
		s.mu.Unlock()
	case MetricsZeros:
		page = s.metricsPage(Stats{})
	case MetricsGarbage:
		page = "\x00\xff<html>{\"vllm:num_requests_running\": }\nvllm:num_requests_waiting{engine=\"0 NaN\n"
	default:
		page = s.metricsPage(s.driver.stats())
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(page))
}

// exposition writes the text format of Prometheus.
type exposition struct {
	strings.Builder
	labels string // of every series but a few
}

// family writes the head of a metric; series of it follow.
func (x *exposition) family(name, kind, help string) {
	fmt.Fprintf(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// series writes one value. labels go in front of the common ones.
func (x *exposition) series(name, labels string, value float64) {
	fmt.Fprintf(x, "%s{%s%s} %v\n", name, labels, x.labels, value)
}

func (x *exposition) gauge(name, help string, value float64) {
	x.family(name, "gauge", help)
	x.series(name, "", value)
}

// counter writes a counter with the ending that Prometheus clients give it.
func (x *exposition) counter(name, help string, value int64) {
	x.family(name, "counter", help)
	x.series(name+"_total", "", float64(value))
}

// metricsPage writes what an engine with these numbers reports.
func (s *Server) metricsPage(st Stats) string {
	s.mu.Lock()
	started, asleep := s.started, s.fault.Sleep
	s.mu.Unlock()

	x := &exposition{labels: fmt.Sprintf("engine=\"%d\",model_name=%q", s.cfg.EngineIndex, s.cfg.Models[0])}
	x.family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	fmt.Fprintf(x, "process_start_time_seconds %.3f\n", float64(started.UnixNano())/float64(time.Second))

	x.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", float64(st.Running))
	x.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", float64(st.Waiting))
	x.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", st.KVUsage)

	x.family("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping.")
	x.series("vllm:engine_sleep_state", `sleep_state="awake",`, truth(!asleep))
	x.series("vllm:engine_sleep_state", `sleep_state="weights_offloaded",`, truth(asleep))
	x.series("vllm:engine_sleep_state", `sleep_state="discard_all",`, 0)

	x.counter("vllm:prefix_cache_queries", "Prefix cache queries, in number of tokens.", st.PrefixQueries)
	x.counter("vllm:prefix_cache_hits", "Prefix cache hits, in number of cached tokens.", st.PrefixHits)
	x.counter("vllm:num_preemptions", "Cumulative number of preemptions from the engine.", st.Preemptions)
	x.counter("vllm:prompt_tokens", "Number of prefill tokens processed.", st.PromptTokens)
	x.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens.", st.CachedTokens)
	x.family("vllm:prompt_tokens_by_source", "counter", "Number of prompt tokens by source.")
	for source, tokens := range sources(st) {
		x.series("vllm:prompt_tokens_by_source_total", fmt.Sprintf("source=%q,", source), float64(tokens))
	}
	x.counter("vllm:generation_tokens", "Number of generation tokens processed.", st.GeneratedTokens)
	x.cacheConfig(s.cfg)
	return x.String()
}

// sources yields where prompt tokens came from, in a fixed order.
func sources(st Stats) func(yield func(string, int64) bool) {
	return func(yield func(string, int64) bool) {
		_ = yield("local_compute", st.PromptTokens-st.CachedTokens) &&
			yield("local_cache_hit", st.CachedTokens) &&
			yield("external_kv_transfer", 0)
	}
}

// cacheConfig writes vllm:cache_config_info, which has no model_name.
func (x *exposition) cacheConfig(c ServerConfig) {
	name := "vllm:cache_config_info"
	x.family(name, "gauge", "Information of the LLMEngine CacheConfig.")
	caching := "True"
	if c.Engine.NoPrefixCache {
		caching = "False"
	}
	fmt.Fprintf(x, "%s{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=%q,engine=\"%d\","+
		"gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"%d\"} 1.0\n",
		name, c.Engine.BlockTokens, caching, c.EngineIndex, c.Engine.KVTokens/c.Engine.BlockTokens)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
