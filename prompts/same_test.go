// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// long is text of n kilobytes in which no two kilobytes are the same.
func long(seed string, n int) string {
	var s strings.Builder
	for i := 0; s.Len() < n*1024; i++ {
		fmt.Fprintf(&s, "%s %d ", seed, i)
	}
	return s.String()[:n*1024]
}

// shared is how many blocks two prompts have in common from the beginning.
func shared(a, b Prompt) int {
	n := 0
	for n < min(len(a.Blocks), len(b.Blocks)) && a.Blocks[n] == b.Blocks[n] {
		n++
	}
	return n
}

// TestSamePrompt has pairs of bodies that come out as the same prompt for the
// engine, and so must share every block.
func TestSamePrompt(t *testing.T) {
	const chat = "/v1/chat/completions"
	a, b := long("a", 3), long("b", 3)
	for _, tc := range []struct{ name, path, one, other string }{
		{
			"order of keys", chat,
			`{"model":"m","tools":[{"name":"f"}],"messages":[{"role":"user","content":"` + a + `"}]}`,
			`{"messages":[{"content":"` + a + `","role":"user"}],"tools":[{"name":"f"}],"model":"m"}`,
		},
		{
			"streaming and sampling", chat,
			`{"model":"m","messages":[{"role":"user","content":"` + a + `"}]}`,
			`{"model":"m","stream":true,"temperature":0.1,"max_tokens":5,"metadata":{"user_id":"x"},"request_id":"r","messages":[{"role":"user","content":"` + a + `"}]}`,
		},
		{
			"one part or a string", chat,
			`{"model":"m","messages":[{"role":"user","content":"` + a + `"},{"role":"assistant","content":"` + b + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"` + a + `"}]},{"role":"assistant","content":[{"text":"` + b + `","type":"text"}]}]}`,
		},
		{
			"cache control moves", "/v1/messages",
			`{"system":[{"type":"text","text":"` + a + `","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"f","cache_control":{}},{"name":"g"}],"messages":[{"role":"user","content":"` + b + `"}]}`,
			`{"system":"` + a + `","tools":[{"name":"f"},{"cache_control":{},"name":"g"}],"messages":[{"role":"user","content":[{"type":"text","text":"` + b + `","cache_control":{"type":"ephemeral"}}]}]}`,
		},
		{
			"billing header changes", "/v1/messages",
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=1;"},{"type":"text","text":"` + a + `"}],"messages":[]}`,
			`{"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=2; cch=2;"},{"type":"text","text":"` + a + `"}],"messages":[]}`,
		},
		{
			"ids of calls change", chat,
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"` + a + `"}}]},{"role":"tool","tool_call_id":"c1","content":"` + b + `"}]}`,
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"c2","function":{"arguments":"` + a + `","name":"f"}}]},{"role":"tool","tool_call_id":"c2","content":"` + b + `"}]}`,
		},
		{
			"white space in tools", chat,
			`{"tools":[{"name":"f","parameters":{"a":[1,2],"b":"` + a + `"}}],"messages":[]}`,
			"{\"tools\":[ {\"name\" : \"f\",\n \"parameters\":{ \"a\" : [ 1 , 2 ] , \"b\" : \"" + a + `" } } ],"messages":[]}`,
		},
		{
			"escapes", chat,
			`{"model":"a/é","messages":[{"role":"user","content":"é\n` + a + `"}]}`,
			`{"model":"a\/\u00e9","mess\u0061ges":[{"role":"user","c\u006fntent":"\u00e9\u000a` + a + `"}]}`,
		},
		{
			"last duplicate wins", chat,
			`{"model":"x","model":"m","messages":[{"role":"user","content":"` + b + `"}],"messages":[{"role":"system","content":"x","role":"user","content":"` + a + `"}]}`,
			`{"model":"m","messages":[{"role":"user","content":"` + a + `"}]}`,
		},
		{
			"image with other members around", chat,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + a + `"},{"type":"image_url","image_url":{"url":"http://i"}}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"text","text":"` + a + `"},{"image_url":{"detail":"auto","url":"http://i"},"type":"image_url"}]}]}`,
		},
		{
			"image by name, with and without its bytes", chat,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://i"},"uuid":"u1"}]}]}`,
			`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":null,"uuid":"u1"}]}]}`,
		},
		{
			"input as string or message", "/v1/responses",
			`{"instructions":"` + b + `","input":"` + a + `"}`,
			`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"` + a + `"}]}],"instructions":"` + b + `"}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			one, other := read(t, tc.path, tc.one), read(t, tc.path, tc.other)
			if !one.Parsed || !other.Parsed || len(one.Blocks) == 0 {
				t.Fatalf("Parsed = %v, %v with %d blocks, want true, true and some", one.Parsed, other.Parsed, len(one.Blocks))
			}
			if !slices.Equal(one.Blocks, other.Blocks) || one.Tokens != other.Tokens {
				t.Errorf("the prompts share %d of %d and %d blocks, with %d and %d tokens", shared(one, other), len(one.Blocks), len(other.Blocks), one.Tokens, other.Tokens)
			}
		})
	}
}

func TestSystemOfBothConversationAPIs(t *testing.T) {
	a, b := long("a", 2), long("b", 2)
	chat := read(t, "/v1/chat/completions", `{"messages":[{"role":"system","content":"`+a+`"},{"role":"user","content":"`+b+`"}]}`)
	messages := read(t, "/v1/messages", `{"messages":[{"role":"user","content":"`+b+`"}],"system":"`+a+`"}`)
	if !slices.Equal(chat.Blocks, messages.Blocks) {
		t.Errorf("chat and messages share %d of %d blocks, want all", shared(chat, messages), len(chat.Blocks))
	}
}

// TestOtherPrompt has pairs of bodies that differ from the beginning.
func TestOtherPrompt(t *testing.T) {
	a := long("a", 3)
	text := `"messages":[{"role":"user","content":"` + a + `"}]}`
	image := func(url string) string {
		return `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}},{"type":"text","text":"` + a + `"}]}]}`
	}
	for _, tc := range []struct{ name, one, other string }{
		{"model", `{"model":"base",` + text, `{"model":"adapter",` + text},
		{"long model", `{"model":"` + a + `x",` + text, `{"model":"` + a + `y",` + text},
		{"cache salt", `{"model":"m","cache_salt":"s",` + text, `{"model":"m","cache_salt":"t",` + text},
		{"salt is not model", `{"model":"m","cache_salt":"s",` + text, `{"model":"ms",` + text},
		{"tools", `{"tools":[{"name":"f"}],` + text, `{"tools":[{"name":"g"}],` + text},
		{"no tools", `{"tools":[{"name":"f"}],` + text, `{` + text},
		{"role", `{` + text, `{"messages":[{"role":"assistant","content":"` + a + `"}]}`},
		{"image", image("data:image/png;base64,AAAA"), image("data:image/png;base64,AAAB")},
		{"image and no image", image("http://i"), `{` + text},
		{"text in front", `{` + text, `{"messages":[{"role":"user","content":"x` + a + `"}]}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			one, other := read(t, "/v1/chat/completions", tc.one), read(t, "/v1/chat/completions", tc.other)
			for _, h := range one.Blocks {
				if slices.Contains(other.Blocks, h) {
					t.Fatalf("the prompts share block %x, want none", h)
				}
			}
			if len(one.Blocks) < 3 {
				t.Errorf("%d blocks, want 3 or more", len(one.Blocks))
			}
		})
	}
}

func TestGenerateTellsImagesApart(t *testing.T) {
	body := `{"features":{"mm_hashes":{"image":["%s"]}},"token_ids":[` + strings.Repeat("1,", 600) + `1]}`
	one, other := read(t, "/inference/v1/generate", fmt.Sprintf(body, "a")), read(t, "/inference/v1/generate", fmt.Sprintf(body, "b"))
	if len(one.Blocks) != 2 || shared(one, other) != 0 {
		t.Errorf("%d blocks, %d shared, want 2, 0", len(one.Blocks), shared(one, other))
	}
}

// TestAppendingExtends grows conversations turn by turn.
func TestAppendingExtends(t *testing.T) {
	for _, tc := range []struct{ path, head, tail, turn string }{
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"s"}`, `]}`, `,{"role":"user","content":"%s"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"system","content":"s"}`, `]}`, `,{"role":"user","content":[{"type":"text","text":"%s"},{"type":"image_url","image_url":{"url":"http://i"}}]}`},
		{"/v1/messages", `{"model":"m","system":"s","messages":[{"role":"user","content":"q"}`, `]}`, `,{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","content":"%s"}]}`},
		{"/v1/responses", `{"model":"m","instructions":"s","input":[{"role":"user","content":"q"}`, `]}`, `,{"type":"reasoning","summary":[]},{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":"%s"}`},
		{"/v1/completions", `{"model":"m","prompt":"s`, `"}`, ` %s`},
		{"/v1/completions", `{"model":"m","prompt":["s"`, `]}`, `,"%s"`},
	} {
		body := tc.head
		before := read(t, tc.path, body+tc.tail)
		for turn := range 5 {
			body += fmt.Sprintf(tc.turn, long(fmt.Sprint(turn), 1)+"odd length")
			after := read(t, tc.path, body+tc.tail)
			if shared(before, after) != len(before.Blocks) || len(after.Blocks) <= len(before.Blocks) {
				t.Errorf("%s: turn %d keeps %d of %d blocks and has %d", tc.path, turn, shared(before, after), len(before.Blocks), len(after.Blocks))
			}
			before = after
		}
	}
}

// TestBlocksKeepStepWithTokens: what a match is worth does not depend on what
// the prompt is made of.
func TestBlocksKeepStepWithTokens(t *testing.T) {
	images := strings.Repeat(`{"type":"image_url","image_url":{"url":"http://i"}},`, 20)
	for path, body := range map[string]string{
		"/v1/completions":        `{"prompt":"` + long("a", 40) + `"}`,
		"/v1/chat/completions":   `{"messages":[{"role":"user","content":[` + images + `"what"]}]}`,
		"/inference/v1/generate": `{"token_ids":[` + strings.Repeat("9,", 10_000) + `9]}`,
	} {
		p := read(t, path, body)
		if got := len(p.Blocks) * BlockTokens; got > p.Tokens+BlockTokens || got < p.Tokens-BlockTokens {
			t.Errorf("%s: %d blocks are %d tokens, want about %d", path, len(p.Blocks), got, p.Tokens)
		}
	}
}
