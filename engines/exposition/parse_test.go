// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/caddy-llm/loadaware/engines"
)

// current is what a server with one engine reports, shortened.
const current = `# HELP python_gc_objects_collected_total Objects collected during gc
# TYPE python_gc_objects_collected_total counter
python_gc_objects_collected_total{generation="0"} 11034.0
# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7855000123e+09
# HELP vllm:num_requests_running engines.Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta/large"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta/large"} 2.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="meta/large",reason="capacity"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="meta/large",reason="deferred"} 1.0
# TYPE vllm:engine_sleep_state gauge
vllm:engine_sleep_state{engine="0",model_name="meta/large",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="meta/large",sleep_state="weights_offloaded"} 0.0
vllm:engine_sleep_state{engine="0",model_name="meta/large",sleep_state="discard_all"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta/large"} 0.25
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="meta/large"} 5000.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="meta/large"} 1.7855000456e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="meta/large"} 3000.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="meta/large"} 4000.0
# TYPE vllm:prompt_tokens_created gauge
vllm:prompt_tokens_created{engine="0",model_name="meta/large"} 1.7855000456e+09
# TYPE vllm:prompt_tokens_by_source_total counter
vllm:prompt_tokens_by_source_total{engine="0",model_name="meta/large",source="local_compute"} 1500.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="meta/large",source="local_cache_hit"} 2400.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="meta/large",source="external_kv_transfer"} 100.0
# TYPE vllm:prompt_tokens_cached_total counter
vllm:prompt_tokens_cached_total{engine="0",model_name="meta/large"} 2500.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="meta/large"} 700.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="meta/large"} 0.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="meta/large"} 12.0
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="1",model_name="an-adapter",running_lora_adapters="an-adapter"} 1.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",engine="0",num_gpu_blocks="1000",num_gpu_blocks_override="None"} 1.0
`

// engines2 are two engines behind one address.
const engines2 = `process_start_time_seconds 1000
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 4
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="1",model_name="m"} 5
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 1
vllm:prompt_tokens_total{engine="0",model_name="m"} 10
vllm:prompt_tokens_total{engine="1",model_name="m"} 20
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="400",num_gpu_blocks="40"} 1
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="400",num_gpu_blocks="40"} 1
`

// old is what a server reports whose names have since changed.
const old = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 1.0
# TYPE vllm:num_requests_swapped gauge
vllm:num_requests_swapped{model_name="m"} 9.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.125
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens{model_name="m"} 50
# TYPE vllm:gpu_prefix_cache_queries counter
vllm:gpu_prefix_cache_queries_total{model_name="m"} 40
vllm:gpu_prefix_cache_hits_total{model_name="m"} 30
vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1
`

func TestParse(t *testing.T) {
	tests := []struct {
		name, page string
		want       engines.Report
	}{
		{"a current server", current, engines.Report{
			Running: engines.Known(3), Waiting: engines.Known(2), KVUsage: engines.Known(0.25), KVTokens: engines.Known(16000),
			Computed: engines.Known(1500), Generated: engines.Known(700), PrefixQueries: engines.Known(5000), PrefixHits: engines.Known(3000),
			Started: engines.Known(1785500012.3), Models: []string{"meta/large"},
		}},
		{"two engines", engines2, engines.Report{
			Running: engines.Known(7), Waiting: engines.Known(5), KVUsage: engines.Known(0.75), KVTokens: engines.Known(800), Computed: engines.Known(30),
			Started: engines.Known(1000), Models: []string{"m"},
		}},
		{"an old server", old, engines.Report{
			Running: engines.Known(1), KVUsage: engines.Known(0.125), Computed: engines.Known(50), PrefixQueries: engines.Known(40), PrefixHits: engines.Known(30),
			Models: []string{"m"},
		}},
		{
			"models in order", "vllm:num_requests_running{model_name=\"b\"} 1\nvllm:num_requests_running{model_name=\"a\\\"\"} 1\n",
			engines.Report{Running: engines.Known(2), Models: []string{`a"`, "b"}},
		},
		{"blanks and a time", "\t vllm:num_requests_running  4  1785500012300\n", engines.Report{Running: engines.Known(4)}},
		{
			"a waiting queue by reason", "vllm:num_requests_waiting_by_reason{reason=\"a\"} 1\nvllm:num_requests_waiting_by_reason{reason=\"b\"} 2\n",
			engines.Report{Waiting: engines.Known(3)},
		},
		{"a counter under both names", "vllm:generation_tokens 1\nvllm:generation_tokens_total 2\n", engines.Report{Generated: engines.Known(2)}},
		{
			"sources without computed tokens", "vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 1\nvllm:prompt_tokens_total 2\n",
			engines.Report{Computed: engines.Known(2)},
		},
		{
			"several start times", "process_start_time_seconds 1\nprocess_start_time_seconds{pid=\"2\"} 2\nvllm:num_requests_running 4\n",
			engines.Report{Running: engines.Known(4)},
		},
		{
			"OpenMetrics", "# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 7\nvllm:prompt_tokens_created 1.7e9\n# EOF\n",
			engines.Report{Computed: engines.Known(7)},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Parse(iotest.HalfReader(strings.NewReader(test.page)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("Parse() = %+v, want %+v", got, test.want)
			}
		})
	}
}

// TestParseBroken holds that what is wrong with a series is the end of its
// number, and of no other.
func TestParseBroken(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	lines := map[string]string{
		"no number":            `vllm:num_requests_waiting{engine="1"} NaN`,
		"infinite":             `vllm:num_requests_waiting{engine="1"} +Inf`,
		"negative":             `vllm:num_requests_waiting{engine="1"} -1`,
		"too large":            `vllm:num_requests_waiting{engine="1"} 1e400`,
		"no value":             `vllm:num_requests_waiting{engine="1"}`,
		"a name alone":         `vllm:num_requests_waiting`,
		"text":                 `vllm:num_requests_waiting{engine="1"} many`,
		"an open string":       `vllm:num_requests_waiting{engine="1} 2`,
		"no labels":            `vllm:num_requests_waiting{`,
		"a label twice":        `vllm:num_requests_waiting{engine="1",engine="1"} 2`,
		"an escape":            `vllm:num_requests_waiting{engine="\q"} 2`,
		"invalid UTF-8":        "vllm:num_requests_waiting{engine=\"\xff\"} 2",
		"something behind it":  `vllm:num_requests_waiting{engine="1"} 2 3 4`,
		"a carriage return":    "vllm:num_requests_waiting{engine=\"1\"} 2\r",
		"a line that is long":  `vllm:num_requests_waiting{engine="` + long + `"} 2`,
		"sums beyond a number": "vllm:num_requests_waiting 1.7e308\nvllm:num_requests_waiting 1.7e308",
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			page := "vllm:num_requests_waiting{engine=\"0\"} 1\n" + line + "\nvllm:num_requests_running 5\n"
			got, err := Parse(strings.NewReader(page))
			if err != nil {
				t.Fatal(err)
			}
			if want := (engines.Report{Running: engines.Known(5)}); !reflect.DeepEqual(got, want) {
				t.Errorf("Parse() = %+v, want %+v", got, want)
			}
		})
	}
	t.Run("a page that ends in a line", func(t *testing.T) {
		got, err := Parse(strings.NewReader("vllm:num_requests_running 5\nvllm:num_requests_waiting 12"))
		if want := (engines.Report{Running: engines.Known(5)}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse() = %+v, %v, want %+v", got, err, want)
		}
	})
	t.Run("series of others", func(t *testing.T) {
		page := "\x00\xff\nother{a=\"\n{}\n{\"vllm:num_requests_running\"} x\nvllm:num_requests_running_max{ 8\n" + long + long +
			"\n# TYPE vllm:num_requests_running histogram\n# TYPE vllm:num_requests_running summary\nvllm:num_requests_running 5\n"
		got, err := Parse(strings.NewReader(page))
		if want := (engines.Report{Running: engines.Known(5)}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse() = %+v, %v, want %+v", got, err, want)
		}
	})
}

func TestParseUsageOfCacheIsNoMoreThanAll(t *testing.T) {
	for value, want := range map[string]engines.Number{"0": engines.Known(0), "1.0": engines.Known(1), "1.01": {}, "35": {}} {
		got, err := Parse(strings.NewReader("vllm:kv_cache_usage_perc 0\nvllm:gpu_cache_usage_perc 0.5\n"))
		if err != nil || got.KVUsage != engines.Known(0) {
			t.Errorf("KVUsage = %v, %v, want the one of the new name", got.KVUsage, err)
		}
		got, err = Parse(strings.NewReader("vllm:gpu_cache_usage_perc " + value + "\n"))
		if err != nil || got.KVUsage != want {
			t.Errorf("KVUsage of %s = %v, %v, want %v", value, got.KVUsage, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for name, page := range map[string]string{
		"nothing":      "",
		"HTML":         "<!doctype html>\n<html><body>Not Found</body></html>\n",
		"llama.cpp":    "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 2\n",
		"plain server": "process_start_time_seconds 1000\ngo_goroutines 4\n",
		"start time":   "process_start_time_seconds soon\n",
		"other series": "vllm:request_success_total 1\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(strings.NewReader(page))
			if !errors.Is(err, ErrNoSeries) || !reflect.DeepEqual(got, engines.Report{}) {
				t.Errorf("Parse() = %+v, %v, want %v", got, err, ErrNoSeries)
			}
		})
	}
	many := strings.Repeat("vllm:num_requests_running 1\n", maxSeries+1)
	failing := io.MultiReader(strings.NewReader(current), iotest.ErrReader(io.ErrUnexpectedEOF))
	for name, test := range map[string]struct {
		page io.Reader
		want string
	}{
		"a broken series": {
			strings.NewReader("<html>\nvllm:num_requests_waiting{engine=\"0 NaN\nvllm:num_requests_running x\n"),
			`metrics: series vllm:num_requests_waiting: text format parsing error in line 2: label value "0 NaN" contains unescaped new-line`,
		},
		"a long value": {
			strings.NewReader("vllm:num_requests_running " + strings.Repeat("é", 500) + "\n"),
			`metrics: series vllm:num_requests_running: text format parsing error in line 1: expected float as value, got "` + strings.Repeat("é", 85),
		},
		"a cut line":      {strings.NewReader("vllm:num_requests_running 1"), "metrics: series vllm:num_requests_running: line is too long or cut off"},
		"too many series": {strings.NewReader(many), "metrics: more than 16384 series to read"},
		"a reader":        {failing, "metrics: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.page)
			if err == nil || err.Error() != test.want || !reflect.DeepEqual(got, engines.Report{}) {
				t.Errorf("Parse() = %+v, %v, want %s", got, err, test.want)
			}
		})
	}
	if _, err := Parse(iotest.ErrReader(io.ErrUnexpectedEOF)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v, want one that wraps the reader's", err)
	}
}

func TestParseManyModels(t *testing.T) {
	var page strings.Builder
	for i := range 2 * maxReportModels {
		fmt.Fprintf(&page, "vllm:num_requests_running{model_name=\"%03d\"} 1\n", i)
	}
	fmt.Fprintf(&page, "vllm:num_requests_running{model_name=%q} 1\n", strings.Repeat("a", maxModelName+1))
	got, err := Parse(strings.NewReader(page.String()))
	if err != nil || len(got.Models) != maxReportModels || got.Running != engines.Known(2*maxReportModels+1) {
		t.Errorf("Parse() = %+v, %v, want %d models", got, err, maxReportModels)
	}
}
