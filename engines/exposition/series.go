// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"math"

	dto "github.com/prometheus/client_model/go"

	"github.com/caddy-llm/loadaware/engines"
)

// The names under which versions of vLLM report a number, the best first.
// Counters end in _total on the wire, except for some old ones.
var (
	runningNames = []string{"vllm:num_requests_running"}

	// the reasons are parts of the whole
	waitingNames = []string{"vllm:num_requests_waiting", "vllm:num_requests_waiting_by_reason"}

	kvUsageNames = []string{"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}

	// Not what is left of prompt_tokens without prompt_tokens_cached, which is
	// only there where by_source is, nor without prefix_cache_hits, which count
	// a request again each time the scheduler looks at it: a difference of two
	// counters that are not read at the same instant can go backwards.
	computedNames = []string{bySourceName, bySourceBareName, "vllm:prompt_tokens_total", "vllm:prompt_tokens"}

	generatedNames = []string{"vllm:generation_tokens_total", "vllm:generation_tokens"}

	queriesNames = []string{
		"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries",
		"vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries",
	}
	hitsNames = []string{
		"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits",
		"vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits",
	}
)

const (
	bySourceName     = "vllm:prompt_tokens_by_source_total"
	bySourceBareName = "vllm:prompt_tokens_by_source"
	cacheConfigName  = "vllm:cache_config_info"
	sleepName        = "vllm:engine_sleep_state"

	// startedName is what every Prometheus client of Linux reports, and the
	// only one of the names that does not speak of vLLM.
	startedName = "process_start_time_seconds"
)

// reading adds what a series says to a page and to the tally of its name.
type reading func(*page, *tally, *dto.Metric)

// wanted are all series that are read, by name.
var wanted = func() map[string]reading {
	names := map[string]reading{startedName: readValue}
	for _, list := range [][]string{
		runningNames, waitingNames, kvUsageNames, computedNames, generatedNames, queriesNames, hitsNames,
	} {
		for _, name := range list {
			names[name] = readValue
		}
	}
	names[bySourceName], names[bySourceBareName] = readComputed, readComputed
	names[cacheConfigName] = func(p *page, _ *tally, m *dto.Metric) { p.capacity.add(m) }
	names[sleepName] = func(p *page, _ *tally, m *dto.Metric) { p.sleep.add(m) }
	return names
}()

func readValue(_ *page, t *tally, m *dto.Metric) { t.add(value(m)) }

func readComputed(_ *page, t *tally, m *dto.Metric) {
	if label(m, "source") == "local_compute" {
		t.add(value(m))
	}
}

// value is the value of a series without a declared type.
func value(m *dto.Metric) float64 { return m.GetUntyped().GetValue() }

// label is the value of a label, "" if the series has none of that name.
func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// tally adds up the series of one name. One that is broken spoils the others.
type tally struct {
	sum    float64
	count  int
	broken bool
}

func (t *tally) add(v float64) {
	// NaN compares as false
	if !(v >= 0) || math.IsInf(v, 1) {
		t.broken = true
		return
	}
	t.sum += v
	t.count++
}

// total is the sum of all series.
func (t tally) total() engines.Number {
	if t.broken || t.count == 0 || math.IsInf(t.sum, 1) {
		return engines.Number{}
	}
	return engines.Known(t.sum)
}

// mean is the mean of all series.
func (t tally) mean() engines.Number {
	n := t.total()
	if n.Known {
		n.Value /= float64(t.count)
	}
	return n
}

// only is the value of a series that has no other of its name beside it.
func (t tally) only() engines.Number {
	if t.count != 1 {
		return engines.Number{}
	}
	return t.total()
}

// share returns a number that is known only if it is no more than 1.
func share(n engines.Number) engines.Number {
	if n.Value > 1 {
		return engines.Number{}
	}
	return n
}
