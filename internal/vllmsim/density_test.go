// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDensity(t *testing.T) {
	for _, per := range []float64{1, 2.5, 3, 3.3, 3.333, 4, 6.7, 100} {
		d := newDensity(per)
		for n := range 2000 {
			size := d.bytes(n)
			if d.tokens(size) < n || size > 0 && d.tokens(size-1) >= n && n > 0 || d.cover(size) < n {
				t.Fatalf("%v bytes per token: %d tokens are %d bytes, which are %d tokens", per, n, size, d.tokens(size))
			}
		}
	}
	if got := newDensity(3).ids("abcdefgh"); len(got) != 2 || got[1] != tokenID("def") {
		t.Errorf("ids() = %v, want two", got)
	}
}

func TestPromptChainOfAnyDensity(t *testing.T) {
	text := []byte(strings.Repeat("0123456789abcdef", 9))
	for _, per := range []float64{1, 3, 3.7, 5.25} {
		d := newDensity(per)
		whole := newPrompt("m", text, d, 4)
		if len(whole.blocks) != whole.tokens/4 {
			t.Errorf("%v bytes per token: %d tokens in %d blocks", per, whole.tokens, len(whole.blocks))
		}
		for cut := range text {
			head := newPrompt("m", text[:cut], d, 4)
			if got := slices.Concat(head.blocks, head.extend(text[cut:])); !slices.Equal(got, whole.blocks) {
				t.Fatalf("%v bytes per token: cut at %d, the chain differs", per, cut)
			}
		}
	}
}

// TestServerDensity has a conversation of two turns at several densities: the second finds the first and its answer.
func TestServerDensity(t *testing.T) {
	prompt := strings.Repeat("a question of some length; ", 20)
	for per, tokens := range map[float64]float64{0: 135, 3: 180, 3.5: 154, 4: 135, 6: 90} {
		t.Run(fmt.Sprint(per), func(t *testing.T) {
			h := newTestHost(t, ServerConfig{BytesPerToken: per, PromptTokensDetails: true})
			if v := call200(t, h, "/tokenize", `{"prompt":"`+prompt+`"}`); v["count"] != tokens {
				t.Errorf("/tokenize counts %v, want %v", v["count"], tokens)
			}
			v := call200(t, h, "/v1/completions", `{"max_tokens":40,"prompt":"`+prompt+`"}`)
			said, _ := at(t, v, "choices", 0, "text").(string)
			if at(t, v, "usage", "prompt_tokens") != tokens || at(t, v, "usage", "completion_tokens") != 40.0 {
				t.Errorf("usage %v, want %v and 40 tokens", v["usage"], tokens)
			}
			if d := newDensity(h.Server().Config().BytesPerToken); len(said) != d.bytes(40) {
				t.Errorf("40 tokens are %d bytes", len(said))
			}
			var streamed strings.Builder
			for _, e := range stream(t, h, "/v1/completions", `{"stream":true,"max_tokens":40,"prompt":"`+prompt+`"}`)[:40] {
				piece, _ := at(t, e.data, "choices", 0, "text").(string)
				streamed.WriteString(piece)
			}
			if streamed.String() != said {
				t.Errorf("streamed %q, unstreamed %q", streamed.String(), said)
			}
			next := call200(t, h, "/v1/completions", `{"prompt":"`+prompt+said+` and on and on"}`)
			want := (int(tokens) + 39) / 16 * 16
			if got := at(t, next, "usage", "prompt_tokens_details", "cached_tokens"); got != float64(want) {
				t.Errorf("the next turn has %v cached tokens, want %d", got, want)
			}
		})
	}
}

// TestDensityOfIDs sends ids to a server whose text is denser than four bytes a token.
func TestDensityOfIDs(t *testing.T) {
	h := newTestHost(t, ServerConfig{BytesPerToken: 3})
	v := call200(t, h, "/v1/completions", `{"prompt":[1,2,3,4,5],"max_tokens":1}`)
	if got := at(t, v, "usage", "prompt_tokens"); got != 5.0 {
		t.Errorf("five ids are %v tokens", got)
	}
	v = call200(t, h, "/inference/v1/generate", `{"token_ids":[5,6,7],"sampling_params":{"max_tokens":7}}`)
	if ids, _ := at(t, v, "choices", 0, "token_ids").([]any); len(ids) != 7 {
		t.Errorf("generated %v, want seven ids", ids)
	}
}

func TestForcedToolCallOfAnyDensity(t *testing.T) {
	h := newTestHost(t, ServerConfig{BytesPerToken: 3})
	const tools = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"city":{"type":"string"}},` +
		`"required":["city"]}}}],"tool_choice":"required"`
	v := call200(t, h, "/v1/chat/completions", `{`+hello+`,`+tools+`}`)
	arguments := at(t, v, "choices", 0, "message", "tool_calls", 0, "function", "arguments")
	if arguments != `{"city":"sun"}` || at(t, v, "usage", "completion_tokens") != 5.0 {
		t.Errorf("arguments %v, usage %v, want 14 bytes in five tokens", arguments, v["usage"])
	}
}
