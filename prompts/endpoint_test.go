// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "testing"

func TestLookup(t *testing.T) {
	prompt := Endpoint{Reads: true, Prefills: true}
	stream := Endpoint{Reads: true, Prefills: true, Streams: true}
	var nothing Endpoint
	for _, tc := range []struct {
		path, name string
		want       Endpoint
	}{
		{"/v1/chat/completions", "chat", stream},
		{"/openai/v1/chat/completions/", "chat", stream},
		{"/chat/completions", "chat", stream},
		{"/openai/deployments/qwen/chat/completions", "chat", stream},
		{"/v1/chat/completions/batch", "chat_batch", prompt},
		{"/v1/completions", "completions", stream},
		{"/v1/responses", "responses", stream},
		{"/v1/messages", "messages", stream},
		{"/cohere/v2/chat", "cohere_chat", stream},
		{"/v1/embeddings", "embeddings", prompt},
		{"/v2/embed", "embed", prompt},
		{"/pooling", "pooling", prompt},
		{"/classify", "classify", prompt},
		{"/score", "score", prompt},
		{"/v1/score", "score", prompt},
		{"/rerank", "rerank", prompt},
		{"/v1/rerank", "rerank", prompt},
		{"/v2/rerank", "rerank", prompt},
		{"/generative_scoring", "generative_scoring", prompt},
		{"/v1/audio/transcriptions", "transcriptions", stream},
		{"/v1/audio/translations", "translations", stream},
		{"/inference/v1/generate", "generate", stream},
		{"/invocations", "invocations", stream},
		{"/v1/messages/count_tokens", "count_tokens", nothing},
		{"/v1/chat/completions/render", "render", nothing},
		{"/v1/completions/derender", "derender", nothing},
		{"/tokenize", "tokenize", nothing},
		{"/detokenize", "detokenize", nothing},
		{"/v1/realtime", "realtime", nothing},
		{"/v1/responses/resp_1", "response", nothing},
		{"/v1/responses/resp_1/cancel", "response", nothing},
		{"/v1/models", "models", nothing},
		{"/v1/load_lora_adapter", "lora", nothing},
		{"/health", "control", nothing},
		{"/llm/metrics", "control", nothing},
		{"/sleep", "control", nothing},
		{"completions", "completions", stream},
	} {
		got, ok := Lookup(tc.path)
		if !ok || got.Name != tc.name {
			t.Errorf("Lookup(%q) = %q, %v, want %q, true", tc.path, got.Name, ok, tc.name)
		}
		if got.Reads != tc.want.Reads || got.Prefills != tc.want.Prefills || got.Streams != tc.want.Streams {
			t.Errorf("Lookup(%q) = %+v, want Reads, Prefills, Streams as in %+v", tc.path, got, tc.want)
		}
	}
	for _, path := range []string{"", "/", "/v1", "/v1/chat", "/generate", "/v1/mycompletions", "/v1/completions/x", "/v1/Completions", "/v1/responses/a/b"} {
		if got, ok := Lookup(path); ok || got != (Endpoint{}) {
			t.Errorf("Lookup(%q) = %+v, %v, want nothing", path, got, ok)
		}
	}
}

func TestResponseID(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/responses/resp_1":          "resp_1",
		"/openai/v1/responses/r/cancel": "r",
		"/v1/responses/r/":              "r",
		"/v1/responses/r/input_items":   "r",
		"/v1/responses":                 "",
		"/v1/responses/":                "",
		"/v1/responses/r/other":         "",
		"/v1/models":                    "",
	} {
		if got := ResponseID(path); got != want {
			t.Errorf("ResponseID(%q) = %q, want %q", path, got, want)
		}
	}
}
