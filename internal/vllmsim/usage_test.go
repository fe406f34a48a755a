// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// usageOf asks twice for the same prompt and returns the second answer's usage.
func usageOf(t *testing.T, h *Host, path string) map[string]any {
	t.Helper()
	text := strings.Repeat("word", 30)
	body := map[string]string{
		"/v1/chat/completions":   `{"messages":[{"role":"user","content":"` + text + `"}]}`,
		"/v1/completions":        `{"prompt":"` + text + `"}`,
		"/v1/embeddings":         `{"input":"` + text + `"}`,
		"/v1/messages":           `{"max_tokens":9,"messages":[{"role":"user","content":"` + text + `"}]}`,
		"/v1/responses":          `{"input":"` + text + `"}`,
		"/inference/v1/generate": `{"token_ids":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]}`,
	}[path]
	call200(t, h, path, body)
	usage, _ := at(t, call200(t, h, path, body), "usage").(map[string]any)
	return usage
}

func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		path           string
		prompt, cached float64 // cached is in the details
	}{
		{"/v1/chat/completions", 35, 32},
		{"/v1/completions", 30, 16},
		{"/v1/embeddings", 30, 16},
		{"/inference/v1/generate", 18, 16},
	} {
		plain := usageOf(t, newTestHost(t, ServerConfig{}), tc.path)
		if plain["prompt_tokens"] != tc.prompt || plain["prompt_tokens_details"] != nil {
			t.Errorf("%s: usage %v, want %v tokens without details", tc.path, plain, tc.prompt)
		}
		full := usageOf(t, newTestHost(t, ServerConfig{PromptTokensDetails: true}), tc.path)
		if full["prompt_tokens"] != tc.prompt || at(t, full, "prompt_tokens_details", "cached_tokens") != tc.cached {
			t.Errorf("%s: usage %v, want %v tokens with %v cached", tc.path, full, tc.prompt, tc.cached)
		}
	}
}

func TestUsageOfMessages(t *testing.T) {
	plain := usageOf(t, newTestHost(t, ServerConfig{}), "/v1/messages")
	if keys := slices.Sorted(maps.Keys(plain)); plain["input_tokens"] != 35.0 || !slices.Equal(keys, []string{"input_tokens", "output_tokens"}) {
		t.Errorf("usage %v, want 35 input tokens and no word of the cache", plain)
	}
	full := usageOf(t, newTestHost(t, ServerConfig{PromptTokensDetails: true}), "/v1/messages")
	if full["input_tokens"] != 3.0 || full["cache_read_input_tokens"] != 32.0 {
		t.Errorf("usage %v, want 32 of 35 tokens cached", full)
	}
}

func TestUsageOfResponses(t *testing.T) {
	for details, cached := range map[bool]float64{false: 0, true: 32} {
		usage := usageOf(t, newTestHost(t, ServerConfig{PromptTokensDetails: details}), "/v1/responses")
		if usage["input_tokens"] != 35.0 || at(t, usage, "input_tokens_details", "cached_tokens") != cached {
			t.Errorf("details %v: usage %v, want %v of 35 tokens cached", details, usage, cached)
		}
	}
}

// TestUsageOfStreams looks for the last chunk, which has no choices.
func TestUsageOfStreams(t *testing.T) {
	plain, forced := newTestHost(t, ServerConfig{}), newTestHost(t, ServerConfig{ForceIncludeUsage: true})
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/inference/v1/generate"} {
		asked := strings.TrimSuffix(promptEndpoints[path], "}") + `,"stream_options":{"include_usage":true}}`
		for _, tc := range []struct {
			h    *Host
			body string
			want bool
		}{
			{plain, promptEndpoints[path], false},
			{plain, asked, true},
			{forced, promptEndpoints[path], true},
			{forced, strings.Replace(asked, "true}}", "false}}", 1), true},
		} {
			list := stream(t, tc.h, path, tc.body)
			last := list[len(list)-2].data // [DONE] is the last
			choices, _ := last["choices"].([]any)
			usage, _ := last["usage"].(map[string]any)
			if got := usage["prompt_tokens"] != nil; got != tc.want || got != (len(choices) == 0) {
				t.Errorf("%s %s: last chunk %v, want usage: %v", path, tc.body, last, tc.want)
			}
			for _, e := range list[:len(list)-2] {
				if e.data["usage"] != nil {
					t.Errorf("%s: usage in chunk %s", path, e.raw)
				}
			}
		}
	}
}
