// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestRanksTakeTurns sends four equal prompts to three engines: each but the first computes it anew, and the fourth
// finds what the first has left.
func TestRanksTakeTurns(t *testing.T) {
	h := newTestHost(t, ServerConfig{DataParallel: 3, Engine: Config{KVTokens: 6400}})
	body := `{"prompt":"` + strings.Repeat("word", 100) + `","max_tokens":5}`
	for range 4 {
		call200(t, h, "/v1/completions", body)
	}
	list := h.Server().RankStats()
	for i, want := range []struct{ finished, hits int64 }{{2, 96}, {1, 0}, {1, 0}} {
		if got := list[i]; got.Finished != want.finished || got.PrefixHits != want.hits || got.PrefixQueries != 100*want.finished {
			t.Errorf("engine %d: %+v, want %+v", i, got, want)
		}
	}
	if s := h.Server().Stats(); s.Finished != 4 || s.PrefixHits != 96 || s.PromptTokens != 400 || s.GeneratedTokens != 20 {
		t.Errorf("Stats() = %+v, want the sum", s)
	}

	// the prompts of one request stay together
	call200(t, h, "/v1/completions", `{"prompt":["a","b"],"max_tokens":1}`)
	if got := h.Server().RankStats()[1].Finished; got != 3 {
		t.Errorf("engine 1 finished %d, want 3", got)
	}
	h.Server().Restart()
	call200(t, h, "/v1/completions", body)
	if s := h.Server().RankStats()[0]; s.Finished != 1 || s.PrefixHits != 0 {
		t.Errorf("engine 0 after a restart: %+v, want one request without hits", s)
	}
}

func TestRanksInMetrics(t *testing.T) {
	h := newTestHost(t, ServerConfig{DataParallel: 2, EngineIndex: 4, Engine: Config{KVTokens: 6400}})
	for range 3 {
		call200(t, h, "/v1/completions", `{"prompt":"x","max_tokens":5}`)
	}
	m := series(t, h)
	for engine, tokens := range map[int]string{4: "10", 5: "5"} {
		labels := fmt.Sprintf(`{engine="%d",model_name="sim-model"}`, engine)
		if got := m["vllm:generation_tokens_total"+labels]; got != tokens {
			t.Errorf("engine %d: %s tokens, want %s", engine, got, tokens)
		}
		info := fmt.Sprintf(`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",`+
			`engine="%d",gpu_memory_utilization="0.9",num_gpu_blocks="400"}`, engine)
		if m[info] != "1.0" {
			t.Errorf("no %s", info)
		}
	}
	heads := 0
	for line := range strings.Lines(page(t, h)) {
		if strings.HasPrefix(line, "# TYPE vllm:num_requests_running ") {
			heads++
		}
	}
	if heads != 1 {
		t.Errorf("%d heads of one metric, want 1", heads)
	}
	h.Server().SetFault(Fault{Metrics: MetricsZeros})
	if got := series(t, h)[`vllm:generation_tokens_total{engine="5",model_name="sim-model"}`]; got != "0" {
		t.Errorf("zeros: %q tokens of engine 5, want 0", got)
	}
}

// TestFaultsReachEveryRank stalls, wakes and closes all engines of a server.
func TestFaultsReachEveryRank(t *testing.T) {
	h := newTestHost(t, ServerConfig{DataParallel: 2})
	h.Server().SetFault(Fault{Stall: true})
	for range 2 {
		_ = mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	}
	waiting := 0
	eventually(t, "both engines have a request", func() bool {
		waiting = 0
		h.Server().WithEngine(func(e *Engine) { waiting += e.Stats().Waiting })
		return waiting == 2
	})
	h.Server().SetFault(Fault{})
	eventually(t, "both engines have run", func() bool {
		list := h.Server().RankStats()
		return list[0].Finished == 1 && list[1].Finished == 1
	})
}

func TestSum(t *testing.T) {
	got := sum([]Stats{
		{Running: 1, Waiting: 2, KVUsage: 0.5, PrefillTokens: 1, CachedTokens: 1, Preemptions: 1, Steps: 3},
		{Running: 2, Waiting: 3, KVUsage: 0.25, PrefillTokens: 4, CachedTokens: 2, Preemptions: 1, Steps: 4},
	})
	want := Stats{Running: 3, Waiting: 5, KVUsage: 0.375, PrefillTokens: 5, CachedTokens: 3, Preemptions: 2, Steps: 7}
	if got != want {
		t.Errorf("sum() = %+v, want %+v", got, want)
	}
}
