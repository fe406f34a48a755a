// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// chatPrompt renders a chat request as the server does.
func chatPrompt(t *testing.T, model, body string) prompt {
	t.Helper()
	var in chatRequest
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		t.Fatal(err)
	}
	return newPrompt(model, transcript(in.Tools, in.conversation()), newDensity(4), 4)
}

func TestPromptIdentity(t *testing.T) {
	const base = `{"tools":[{"type":"function","function":{"name":"f","strict":true}}],"messages":[{"role":"user","content":"hello"}]}`
	for _, tc := range []struct {
		name, model, body string
		equal             bool
	}{
		{"itself", "m", base, true},
		{"other key order", "m", `{"messages":[{"content":"hello","role":"user"}],"tools":[{"function":{"strict":true,"name":"f"},"type":"function"}]}`, true},
		{"content as parts", "m", strings.Replace(base, `"hello"`, `[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]`, 1), true},
		{"cache_control", "m", strings.Replace(base, `"name":"f"`, `"name":"f","cache_control":{"type":"ephemeral"}`, 1), true},
		{"other model", "n", base, false},
		{"other text", "m", strings.Replace(base, "hello", "help!", 1), false},
		{"other role", "m", strings.Replace(base, `"user"`, `"tool"`, 1), false},
		{"other tool", "m", strings.Replace(base, `"f"`, `"g"`, 1), false},
	} {
		a, b := chatPrompt(t, "m", base), chatPrompt(t, tc.model, tc.body)
		if equal := slices.Equal(a.blocks, b.blocks) && a.state == b.state; equal != tc.equal {
			t.Errorf("%s: equal = %v, want %v", tc.name, equal, tc.equal)
		}
	}
}

func TestPromptChain(t *testing.T) {
	text := []byte(strings.Repeat("0123456789abcdef", 9) + "tail!")
	whole := newPrompt("m", text, newDensity(4), 4)
	if whole.tokens != 37 || len(whole.blocks) != 9 {
		t.Fatalf("%d tokens in %d blocks, want 37 in 9", whole.tokens, len(whole.blocks))
	}
	for cut := range text {
		head := newPrompt("m", text[:cut], newDensity(4), 4)
		if got := slices.Concat(head.blocks, head.extend(text[cut:])); !slices.Equal(got, whole.blocks) {
			t.Fatalf("cut at %d, the chain is %x, want %x", cut, got, whole.blocks)
		}
	}
	other := slices.Clone(text)
	other[20]++ // in the second block
	if got := newPrompt("m", other, newDensity(4), 4).blocks; got[0] != whole.blocks[0] || got[1] == whole.blocks[1] || got[8] == whole.blocks[8] {
		t.Errorf("a change in block 1 gives %x, want only block 0 of %x", got, whole.blocks)
	}
}

func TestMediaCostsAFixedNumberOfTokens(t *testing.T) {
	with := func(url string) prompt {
		return chatPrompt(t, "m", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"`+url+`"}}]}]}`)
	}
	small, large := with("data:x"), with("data:"+strings.Repeat("x", 100_000))
	if small.tokens != large.tokens || small.tokens < mediaBytes/4 || small.tokens > mediaBytes/4+20 {
		t.Errorf("%d and %d tokens, want about %d each", small.tokens, large.tokens, mediaBytes/4)
	}
	if small.state == large.state {
		t.Error("different images are the same prompt")
	}
}

// TestNextTurnFindsTheLast sends each API's next turn, which repeats the answer of the one before.
func TestNextTurnFindsTheLast(t *testing.T) {
	question := strings.Repeat("a question of some length; ", 20)
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	turn := func(role, text string) string { return `{"role":"` + role + `","content":` + quote(text) + `}` }
	for _, tc := range []struct {
		path, field, limit string
		cached, prompt     func(v any) float64
		text               []any
	}{
		{
			path: "/v1/chat/completions", field: "messages", limit: "max_tokens",
			cached: func(v any) float64 {
				return at(t, v, "usage", "prompt_tokens_details", "cached_tokens").(float64)
			},
			prompt: func(v any) float64 { return at(t, v, "usage", "prompt_tokens").(float64) },
			text:   []any{"choices", 0, "message", "content"},
		},
		{
			path: "/v1/messages", field: "messages", limit: "max_tokens",
			cached: func(v any) float64 { return at(t, v, "usage", "cache_read_input_tokens").(float64) },
			prompt: func(v any) float64 {
				return at(t, v, "usage", "input_tokens").(float64) + at(t, v, "usage", "cache_read_input_tokens").(float64)
			},
			text: []any{"content", 0, "text"},
		},
		{
			path: "/v1/responses", field: "input", limit: "max_output_tokens",
			cached: func(v any) float64 {
				return at(t, v, "usage", "input_tokens_details", "cached_tokens").(float64)
			},
			prompt: func(v any) float64 { return at(t, v, "usage", "input_tokens").(float64) },
			text:   []any{"output", 0, "content", 0, "text"},
		},
	} {
		t.Run(tc.path, func(t *testing.T) {
			h := newTestHost(t, ServerConfig{PromptTokensDetails: true})
			body := func(turns ...string) string {
				return `{"` + tc.limit + `":40,"` + tc.field + `":[` + strings.Join(turns, ",") + `]}`
			}
			first := call200(t, h, tc.path, body(turn("user", question)))
			if got := tc.cached(first); got != 0 {
				t.Errorf("first turn has %v cached tokens", got)
			}
			answer, _ := at(t, first, tc.text...).(string)
			second := call200(t, h, tc.path, body(turn("user", question), turn("assistant", answer), turn("user", "go on")))
			// everything but the last token of the answer has KV, in whole blocks of 16
			known := int(tc.prompt(first)) + 39
			if got := int(tc.cached(second)); got != known/16*16 {
				t.Errorf("next turn has %d of %v tokens cached, want %d", got, tc.prompt(second), known/16*16)
			}
		})
	}
}

func TestForcedToolCalls(t *testing.T) {
	const schema = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F"]}},"required":["city","days","unit"]}`
	const want = `{"city":"sun","days":1,"unit":"C"}`
	chatTools := `"tools":[{"type":"function","function":{"name":"one"}},{"type":"function","function":{"name":"two","parameters":` + schema + `}}]`
	h := newTestHost(t, ServerConfig{})

	forced := `{` + hello + `,` + chatTools + `,"tool_choice":{"type":"function","function":{"name":"two"}}`
	v := call200(t, h, "/v1/chat/completions", forced+`}`)
	call := at(t, v, "choices", 0, "message", "tool_calls", 0, "function")
	if at(t, call, "name") != "two" || at(t, call, "arguments") != want || at(t, v, "choices", 0, "finish_reason") != "tool_calls" {
		t.Errorf("forced call %v", v)
	}
	var args strings.Builder
	for _, e := range stream(t, h, "/v1/chat/completions", forced+`,"stream":true}`) {
		if strings.Contains(e.raw, "tool_calls\":") {
			s, _ := at(t, e.data, "choices", 0, "delta", "tool_calls", 0, "function", "arguments").(string)
			args.WriteString(s)
		}
	}
	if args.String() != want {
		t.Errorf("streamed arguments %q, want %q", args.String(), want)
	}
	v = call200(t, h, "/v1/chat/completions", `{`+hello+`,`+chatTools+`,"tool_choice":"required"}`)
	if got := at(t, v, "choices", 0, "message", "tool_calls", 0, "function", "name"); got != "one" {
		t.Errorf("required tool is %v, want the first", got)
	}

	v = call200(t, h, "/v1/messages", `{"max_tokens":9,`+hello+`,"tools":[{"name":"two","input_schema":`+schema+`}],"tool_choice":{"type":"any"}}`)
	if at(t, v, "content", 0, "type") != "tool_use" || at(t, v, "content", 0, "input", "city") != "sun" || v["stop_reason"] != "tool_use" {
		t.Errorf("message %v", v)
	}
	v = call200(t, h, "/v1/responses", `{"input":"x","tools":[{"type":"function","name":"two","parameters":`+schema+`}],"tool_choice":"required"}`)
	if at(t, v, "output", 0, "type") != "function_call" || at(t, v, "output", 0, "arguments") != want {
		t.Errorf("response %v", v)
	}

	// no call without force, and none in answer to a tool's result
	for path, body := range map[string]string{
		"/v1/chat/completions": `{` + hello + `,` + chatTools + `,"tool_choice":"auto"}`,
		"/v1/messages": `{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"x","content":"ok"}]}],` +
			`"tools":[{"name":"two"}],"tool_choice":{"type":"any"}}`,
	} {
		resp, v := callJSON(t, h, http.MethodPost, path, body)
		text, _ := json.Marshal(v)
		if resp != 200 || strings.Contains(string(text), "two") {
			t.Errorf("%s = %d %s, want text", path, resp, text)
		}
	}
}
