// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package exposition

import (
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/engines"
)

func TestKVTokens(t *testing.T) {
	tests := []struct {
		name   string
		labels []string // of each series
		want   engines.Number
	}{
		{"one engine", []string{`block_size="16",num_gpu_blocks="100"`}, engines.Known(1600)},
		{"one with its size", []string{`block_size="4",num_gpu_blocks="100",kv_cache_size_tokens="5000"`}, engines.Known(5000)},
		{"one whose size is None", []string{`block_size="16",num_gpu_blocks="100",kv_cache_size_tokens="None"`}, engines.Known(1600)},
		{"the blocks of all engines, twice", []string{
			`engine="0",block_size="16",num_gpu_blocks="200"`, `engine="1",block_size="16",num_gpu_blocks="200"`,
		}, engines.Known(3200)},
		{"engines that differ", []string{
			`engine="0",block_size="16",num_gpu_blocks="100"`, `engine="1",block_size="32",num_gpu_blocks="100"`,
		}, engines.Known(4800)},
		{"a size for each", []string{`engine="0",kv_cache_size_tokens="5000"`, `engine="1",kv_cache_size_tokens="5000"`}, engines.Known(10000)},
		{"a size for one of two", []string{
			`engine="0",kv_cache_size_tokens="5000"`, `engine="1",block_size="16",num_gpu_blocks="100"`,
		}, engines.Number{}},
		{"no blocks yet", []string{`block_size="16",num_gpu_blocks="None"`}, engines.Number{}},
		{"no blocks", []string{`block_size="16",num_gpu_blocks="0"`}, engines.Number{}},
		{"negative blocks", []string{`block_size="16",num_gpu_blocks="-5"`}, engines.Number{}},
		{"parts of blocks", []string{`block_size="16",num_gpu_blocks="1.5"`}, engines.Number{}},
		{"more than there is", []string{`block_size="16",num_gpu_blocks="99999999999999999999"`}, engines.Number{}},
		{"one engine of two", []string{`engine="0",block_size="16",num_gpu_blocks="100"`, `engine="1",block_size="16"`}, engines.Number{}},
		{"a broken series", []string{`engine="0",block_size="16",num_gpu_blocks="100"`, `engine=1`}, engines.Number{}},
		{"no labels", []string{""}, engines.Number{}},
		{"no series", nil, engines.Number{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parsed(t, "vllm:cache_config_info", test.labels, "1.0")
			if got.KVTokens != test.want {
				t.Errorf("KVTokens = %v, want %v", got.KVTokens, test.want)
			}
		})
	}
}

// parsed reads a page of one series with each of labels.
func parsed(t *testing.T, name string, labels []string, value string) engines.Report {
	t.Helper()
	var page strings.Builder
	page.WriteString("vllm:num_requests_running 0\n")
	for _, l := range labels {
		page.WriteString(name + "{" + l + "} " + value + "\n")
	}
	got, err := Parse(strings.NewReader(page.String()))
	if err != nil {
		t.Fatal(err)
	}
	return got
}
