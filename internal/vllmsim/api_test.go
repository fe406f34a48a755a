// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

const hello = `"messages":[{"role":"user","content":"hello there, engine"}]`

func TestChatCompletion(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	v := call200(t, h, "/v1/chat/completions", `{`+hello+`,"max_tokens":5}`)
	text, _ := at(t, v, "choices", 0, "message", "content").(string)
	if len(strings.Fields(text)) != 5 || at(t, v, "choices", 0, "finish_reason") != "length" {
		t.Errorf("answer %q, %v, want five words and length", text, at(t, v, "choices", 0, "finish_reason"))
	}
	// <|user|>hello there, engine\n<|assistant|> is 42 bytes
	if p, c := at(t, v, "usage", "prompt_tokens"), at(t, v, "usage", "completion_tokens"); p != 10.0 || c != 5.0 {
		t.Errorf("usage %v, want 10 prompt and 5 completion tokens", v["usage"])
	}

	list := stream(t, h, "/v1/chat/completions", `{`+hello+`,"max_completion_tokens":5,"stream":true}`)
	var streamed strings.Builder
	for _, e := range list[1:6] {
		s, _ := at(t, e.data, "choices", 0, "delta", "content").(string)
		streamed.WriteString(s)
	}
	if streamed.String() != text {
		t.Errorf("streamed %q, unstreamed %q", streamed.String(), text)
	}
	if len(list) != 8 || at(t, list[0].data, "choices", 0, "delta", "role") != "assistant" ||
		at(t, list[6].data, "choices", 0, "finish_reason") != "length" || list[7].raw != "[DONE]" {
		t.Errorf("stream %v, want role, five tokens, finish and [DONE]", list)
	}

	list = stream(t, h, "/v1/chat/completions", `{`+hello+`,"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`)
	if len(list) != 9 || at(t, list[7].data, "usage", "total_tokens") != 15.0 {
		t.Errorf("stream with usage %v, want usage before [DONE]", list)
	}
}

func TestOutputLimits(t *testing.T) {
	h := newTestHost(t, ServerConfig{OutputTokens: 7, MaxOutputTokens: 9, MaxModelTokens: 100})
	long := strings.Repeat("word", 85)
	for _, tc := range []struct {
		body   string
		tokens float64
		finish string
	}{
		{`{` + hello + `}`, 7, "stop"},
		{`{` + hello + `,"max_tokens":9}`, 9, "length"},
		{`{` + hello + `,"max_tokens":5000}`, 9, "stop"},
		{`{"messages":[{"role":"user","content":"` + long + `"}],"max_tokens":9}`, 9, "length"},
		{`{"messages":[{"role":"user","content":"` + long + `words and"}]}`, 7, "stop"},
		{`{"messages":[{"role":"user","content":"` + long + `words and words"}]}`, 6, "length"},
	} {
		v := call200(t, h, "/v1/chat/completions", tc.body)
		if n, f := at(t, v, "usage", "completion_tokens"), at(t, v, "choices", 0, "finish_reason"); n != tc.tokens || f != tc.finish {
			t.Errorf("%.60s: %v tokens, %v, want %v, %v", tc.body, n, f, tc.tokens, tc.finish)
		}
	}
}

func TestErrors(t *testing.T) {
	h := newTestHost(t, ServerConfig{Models: []string{"one", "two"}, MaxModelTokens: 100})
	long := strings.Repeat("word", 200)
	for _, tc := range []struct {
		path, body string
		status     int
		kind       string
	}{
		{"/v1/chat/completions", `{"model":"two",` + hello + `}`, 200, ""},
		{"/v1/chat/completions", `{"model":"three",` + hello + `}`, 404, "NotFoundError"},
		{"/v1/chat/completions", `{"messages":`, 400, "BadRequestError"},
		{"/v1/chat/completions", `{"messages":"hello"}`, 400, "BadRequestError"},
		{"/v1/chat/completions", `{}`, 400, "BadRequestError"},
		{"/v1/chat/completions", `{` + hello + `} trailing`, 400, "BadRequestError"},
		{"/v1/chat/completions", `{` + hello + `,"max_tokens":0}`, 400, "BadRequestError"},
		{"/v1/completions", `{"prompt":"` + long + `","stream":true}`, 400, "BadRequestError"},
		{"/v1/completions", `{"prompt":{"text":"x"}}`, 400, "BadRequestError"},
		{"/v1/completions", `{"prompt":null}`, 400, "BadRequestError"},
		{"/v1/messages", `{` + hello + `}`, 400, "BadRequestError"},
		{"/v1/messages", `{"model":"three","max_tokens":1,` + hello + `}`, 404, "NotFoundError"},
		{"/v1/messages/count_tokens", `{"model":"three",` + hello + `}`, 404, "NotFoundError"},
		{"/v1/responses", `{"model":"three","input":"x"}`, 404, "NotFoundError"},
		{"/v1/responses", `{"model":"one"}`, 400, "BadRequestError"},
		{"/v1/responses", `{"input":"x","previous_response_id":"resp_none"}`, 404, "invalid_request_error"},
		{"/v1/embeddings", `{"model":"three","input":"x"}`, 404, "NotFoundError"},
		{"/inference/v1/generate", `{"token_ids":[]}`, 400, "BadRequestError"},
		{"/tokenize", `{}`, 400, "BadRequestError"},
	} {
		status, v := callJSON(t, h, http.MethodPost, tc.path, tc.body)
		if status != tc.status {
			t.Errorf("%s %.40s = %d %v, want %d", tc.path, tc.body, status, v, tc.status)
			continue
		}
		if status == 200 {
			continue
		}
		if kind := at(t, v, "error", "type"); kind != tc.kind {
			t.Errorf("%s %.40s: type %v, want %v", tc.path, tc.body, kind, tc.kind)
		}
		if anthropic := v["type"] == "error"; anthropic != strings.HasPrefix(tc.path, "/v1/messages") {
			t.Errorf("%s: error %v in the wrong shape", tc.path, v)
		}
	}
	resp, err := http.Post(h.URL()+"/v1/chat/completions", "text/plain", strings.NewReader(`{`+hello+`}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 400 {
		t.Errorf("text/plain = %d, want 400", resp.StatusCode)
	}
}

func TestCompletions(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	for body, prompts := range map[string]int{
		`"one prompt"`: 1, `["one","two","three"]`: 3, `[1,2,3,4]`: 1, `[[1,2],[3]]`: 2,
	} {
		v := call200(t, h, "/v1/completions", `{"max_tokens":3,"prompt":`+body+`}`)
		choices, _ := v["choices"].([]any)
		if len(choices) != prompts || at(t, v, "usage", "completion_tokens") != float64(3*prompts) {
			t.Errorf("prompt %s: %v, want %d choices", body, v, prompts)
		}
		texts := make([]string, prompts)
		list := stream(t, h, "/v1/completions", `{"max_tokens":3,"stream":true,"prompt":`+body+`}`)
		for _, e := range list[:len(list)-1] {
			i, _ := at(t, e.data, "choices", 0, "index").(float64)
			s, _ := at(t, e.data, "choices", 0, "text").(string)
			texts[int(i)] += s
		}
		for i, text := range texts {
			if want := at(t, v, "choices", i, "text"); text != want {
				t.Errorf("prompt %s: choice %d streams %q, want %q", body, i, text, want)
			}
		}
	}
	v := call200(t, h, "/v1/completions", `{"prompt":[1,2,3,4,5]}`)
	if got := at(t, v, "usage", "prompt_tokens"); got != 5.0 {
		t.Errorf("five token ids are %v tokens", got)
	}
}

func TestMessages(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	body := `{"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}}],"max_tokens":3,` + hello
	v := call200(t, h, "/v1/messages", body+`}`)
	if v["stop_reason"] != "max_tokens" || at(t, v, "usage", "output_tokens") != 3.0 {
		t.Errorf("message %v", v)
	}
	n := call200(t, h, "/v1/messages/count_tokens", body+`}`)
	if n["input_tokens"] != at(t, v, "usage", "input_tokens") {
		t.Errorf("count_tokens %v, usage %v", n, v["usage"])
	}
	list := stream(t, h, "/v1/messages", body+`,"stream":true}`)
	want := "message_start content_block_start content_block_delta content_block_delta content_block_delta " +
		"content_block_stop message_delta message_stop"
	if got := names(list); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
	var text strings.Builder
	for _, e := range list {
		if e.name != e.data["type"] {
			t.Errorf("event %s carries type %v", e.name, e.data["type"])
		}
		if e.name == "content_block_delta" {
			s, _ := at(t, e.data, "delta", "text").(string)
			text.WriteString(s)
		}
	}
	if whole := at(t, v, "content", 0, "text"); text.String() != whole {
		t.Errorf("streamed %q, unstreamed %q", text.String(), whole)
	}
}

func TestEmbeddings(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	v := call200(t, h, "/v1/embeddings", `{"input":["same","same","else"]}`)
	vector := func(i int) []any { l, _ := at(t, v, "data", i, "embedding").([]any); return l }
	if len(vector(0)) != dimensions || vector(0)[0] != vector(1)[0] || vector(0)[0] == vector(2)[0] {
		t.Errorf("embeddings %v", v)
	}
	if u := at(t, v, "usage", "prompt_tokens"); u != 3.0 {
		t.Errorf("usage %v, want 3 prompt tokens", v["usage"])
	}
	v = call200(t, h, "/v1/embeddings", `{"input":"same","encoding_format":"base64"}`)
	text, _ := at(t, v, "data", 0, "embedding").(string)
	if raw, err := base64.StdEncoding.DecodeString(text); err != nil || len(raw) != 4*dimensions {
		t.Errorf("embedding %q is not base64 of %d floats", text, dimensions)
	}
	if s := h.Server().Stats(); s.GeneratedTokens != 0 || s.Finished != 4 {
		t.Errorf("Stats() = %+v, want four finished requests and no token", s)
	}
}

func TestGenerateAndTokenize(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	v := call200(t, h, "/inference/v1/generate", `{"token_ids":[5,6,7],"sampling_params":{"max_tokens":4}}`)
	generated, _ := at(t, v, "choices", 0, "token_ids").([]any)
	if len(generated) != 4 {
		t.Errorf("generated %v, want four ids", v)
	}
	list := stream(t, h, "/inference/v1/generate", `{"token_ids":[5,6,7],"sampling_params":{"max_tokens":4},"stream":true}`)
	if len(list) != 6 || at(t, list[2].data, "choices", 0, "token_ids", 0) != generated[2] {
		t.Errorf("stream %v, want ids %v", list, generated)
	}
	for body, want := range map[string]float64{
		`{"prompt":"twelve bytes"}`: 3, `{` + hello + `}`: 10,
	} {
		v := call200(t, h, "/tokenize", body)
		if ids, _ := v["tokens"].([]any); v["count"] != want || len(ids) != int(want) {
			t.Errorf("tokenize %s = %v, want %v tokens", body, v, want)
		}
	}
	if s := h.Server().Stats(); s.Finished != 2 {
		t.Errorf("Stats() = %+v, want tokenize not to reach the engine", s)
	}
}
