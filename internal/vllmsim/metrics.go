// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// metrics serves GET /metrics.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	f := s.Fault()
	pause(r.Context(), f.MetricsDelayMillis)
	cutIfGone(r.Context())
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
		page = s.metricsPage(make([]Stats, s.cfg.DataParallel))
	case MetricsGarbage:
		page = "\x00\xff<html>{\"vllm:num_requests_running\": }\nvllm:num_requests_waiting{engine=\"0 NaN\n"
	default:
		page = s.reportedPage(f.Report)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, page)
	if f.Metrics == MetricsHuge {
		writeFiller(r.Context(), w, hugePage-len(page))
		cutIfGone(r.Context())
	}
}

// reportedPage writes what the engines report under an override.
func (s *Server) reportedPage(over Report) string {
	return s.metricsPage(over.apply(s.ranks.stats()))
}

// metricsPage writes what engines with these numbers report.
func (s *Server) metricsPage(engines []Stats) string {
	s.mu.Lock()
	started, asleep, model := s.started, s.fault.Sleep, s.catalog.label()
	s.mu.Unlock()

	x := &exposition{engines: engines}
	for i := range engines {
		x.labels = append(x.labels, fmt.Sprintf("engine=\"%d\",model_name=%q", s.cfg.EngineIndex+i, model))
	}
	x.family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.")
	fmt.Fprintf(x, "process_start_time_seconds %.3f\n", float64(started.UnixNano())/float64(time.Second))

	running := func(st Stats) float64 { return float64(st.Running) }
	x.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", running)
	waiting := func(st Stats) float64 { return float64(st.Waiting) }
	x.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting)
	x.counter("vllm:num_preemptions", "Cumulative number of preemptions from the engine.",
		func(st Stats) int64 { return st.Preemptions })
	x.counter("vllm:prompt_tokens", "Number of prefill tokens processed.",
		func(st Stats) int64 { return st.PromptTokens })
	x.counter("vllm:generation_tokens", "Number of generation tokens processed.",
		func(st Stats) int64 { return st.GeneratedTokens })
	if s.cfg.OldMetricNames {
		x.cache("vllm:gpu_cache_usage_perc", "vllm:gpu_prefix_cache")
	} else {
		x.cache("vllm:kv_cache_usage_perc", "vllm:prefix_cache")
		x.sources()
		x.sleep(asleep)
	}
	x.cacheConfig(s.cfg)
	return x.String()
}

// cache writes what became of the KV cache, whose metrics were renamed.
func (x *exposition) cache(usage, prefix string) {
	x.gauge(usage, "KV-cache usage. 1 means 100 percent usage.", func(st Stats) float64 { return st.KVUsage })
	x.counter(prefix+"_queries", "Prefix cache queries, in number of tokens.",
		func(st Stats) int64 { return st.PrefixQueries })
	x.counter(prefix+"_hits", "Prefix cache hits, in number of cached tokens.",
		func(st Stats) int64 { return st.PrefixHits })
}

// sources writes where prompt tokens came from.
func (x *exposition) sources() {
	cached := func(st Stats) float64 { return float64(st.CachedTokens) }
	x.counter("vllm:prompt_tokens_cached", "Number of cached prompt tokens.",
		func(st Stats) int64 { return st.CachedTokens })
	x.family("vllm:prompt_tokens_by_source", "counter", "Number of prompt tokens by source.")
	name := "vllm:prompt_tokens_by_source_total"
	x.series(name, `source="local_compute",`, func(st Stats) float64 { return float64(st.PromptTokens - st.CachedTokens) })
	x.series(name, `source="local_cache_hit",`, cached)
	x.series(name, `source="external_kv_transfer",`, always(0))
}

// sleep writes whether the engines are awake.
func (x *exposition) sleep(asleep bool) {
	awake, offloaded := 1.0, 0.0
	if asleep {
		awake, offloaded = 0, 1
	}
	x.family("vllm:engine_sleep_state", "gauge", "Engine sleep state; awake = 0 means engine is sleeping.")
	x.series("vllm:engine_sleep_state", `sleep_state="awake",`, always(awake))
	x.series("vllm:engine_sleep_state", `sleep_state="weights_offloaded",`, always(offloaded))
	x.series("vllm:engine_sleep_state", `sleep_state="discard_all",`, always(0))
}

// cacheConfig writes vllm:cache_config_info, which has no model_name.
func (x *exposition) cacheConfig(c ServerConfig) {
	name := "vllm:cache_config_info"
	x.family(name, "gauge", "Information of the LLMEngine CacheConfig.")
	caching := "True"
	if c.Engine.NoPrefixCache {
		caching = "False"
	}
	for i := range x.engines {
		fmt.Fprintf(x, "%s{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=%q,engine=\"%d\","+
			"gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"%d\"} 1.0\n",
			name, c.Engine.BlockTokens, caching, c.EngineIndex+i, c.Engine.KVTokens/c.Engine.BlockTokens)
	}
}
