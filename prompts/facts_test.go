// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestReadFacts(t *testing.T) {
	long513 := strings.Repeat("x", MaxValueBytes+1)
	for _, tc := range []struct {
		name, path, body string
		streams          bool
		model, previous  string
		hints            []Hint
	}{
		{"nothing", "/v1/chat/completions", `{}`, false, "", "", nil},
		{"stream", "/v1/chat/completions", `{"stream":true,"model":"a\/b"}`, true, "a/b", "", nil},
		{"stream as a word", "/v1/completions", `{"stream":"Yes"}`, true, "", "", nil},
		{"stream as a number", "/v1/completions", `{"stream":1}`, true, "", "", nil},
		{"no stream", "/v1/completions", `{"stream":true,"stream":false}`, false, "", "", nil},
		{"stream of an endpoint without", "/v1/embeddings", `{"stream":true}`, false, "", "", nil},
		{
			"hints in order", "/v1/responses",
			`{"metadata":{"user_id":"u"},"conversation":"c","prompt_cache_key":"k","session_id":"s","request_id":"r","user":"x"}`,
			false, "", "",
			[]Hint{{"session_id", "s"}, {"prompt_cache_key", "k"}, {"conversation", "c"}, {"metadata.user_id", "u"}},
		},
		{"conversation object", "/v1/responses", `{"conversation":{"id":"c1","x":2}}`, false, "", "", []Hint{{"conversation", "c1"}}},
		{"longest value", "/v1/responses", `{"prompt_cache_key":"` + long513[1:] + `"}`, false, "", "", []Hint{{"prompt_cache_key", long513[1:]}}},
		{
			"too long, too short, not a string", "/v1/responses",
			`{"prompt_cache_key":"` + long513 + `","conversation":"","metadata":{"user_id":7},"model":"` + long513 + `","session_id":"` + strings.Repeat("\\u0061", 513) + `"}`,
			false, "", "", nil,
		},
		{"previous response", "/v1/responses", `{"previous_response_id":"resp_1"}`, false, "", "resp_1", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := read(t, tc.path, tc.body)
			if p.Streams != tc.streams || p.Model != tc.model || p.PreviousResponse != tc.previous || !slices.Equal(p.Hints, tc.hints) {
				t.Errorf("Read = %v, %q, %q, %v, want %v, %q, %q, %v", p.Streams, p.Model, p.PreviousResponse, p.Hints, tc.streams, tc.model, tc.previous, tc.hints)
			}
		})
	}
}

// TestUnreadable has bodies that are placed by size.
func TestUnreadable(t *testing.T) {
	e, _ := Lookup("/v1/chat/completions")
	chat := `{"messages":[{"role":"user","content":"hello"}]}`
	for name, body := range map[string]string{
		"empty":          "",
		"space":          "  \n",
		"null":           "null",
		"number":         "12",
		"string":         `"hello hello"`,
		"array":          "[" + chat + "]",
		"cut":            chat[:len(chat)-1],
		"something more": chat + "x",
		"two":            chat + chat,
		"gzip":           "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + strings.Repeat("\x01\xfe", 300),
		"form":           "model=m&prompt=hello+there",
		"deep":           `{"messages":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + `}`,
		"endless":        strings.Repeat(`{"a":`, 100_000),
		"control":        "{\"messages\":\"a\nb\"}",
		"escape":         `{"messages":"\x"}`,
		"no colon":       `{"messages" "a"}`,
		"comma":          `{"messages":[1,],}`,
	} {
		p := e.Read([]byte(body), true, "application/json", Limits{})
		want := Prompt{Prefills: true, Tokens: len(body) / 4}
		if p.Parsed || p.Tokens != want.Tokens || !p.Prefills || p.Blocks != nil || p.Model != "" {
			t.Errorf("%s: Read = %+v, want %+v", name, p, want)
		}
	}
}

func TestEndpointsThatAreNotRead(t *testing.T) {
	for _, path := range []string{"/v1/messages/count_tokens", "/tokenize", "/v1/models", "/nothing/known"} {
		e, _ := Lookup(path)
		p := e.Read([]byte(`{"model":"m","prompt":"`+long("a", 2)+`"}`), true, "application/json", Limits{})
		if p.Parsed || p.Prefills || p.Tokens != 0 || p.Blocks != nil {
			t.Errorf("%s: Read = %+v, want nothing", path, p)
		}
	}
}

func TestBySize(t *testing.T) {
	for _, tc := range []struct {
		bytes int64
		l     Limits
		want  int
	}{
		{0, Limits{}, 0},
		{-1, Limits{}, 0},
		{7, Limits{}, 1},
		{1 << 40, Limits{}, DefaultMaxPromptTokens},
		{1 << 40, Limits{MaxPromptTokens: 10}, 10},
		{400, Limits{MaxPromptTokens: -1}, 100},
	} {
		if got := BySize(tc.bytes, tc.l); got != tc.want {
			t.Errorf("BySize(%d, %v) = %d, want %d", tc.bytes, tc.l, got, tc.want)
		}
	}
}

func TestLimits(t *testing.T) {
	e, _ := Lookup("/v1/chat/completions")
	body := []byte(`{"messages":[{"role":"user","content":["` + long("a", 20) + `",{"type":"image_url","image_url":{"url":"http://i"}}]}]}`)
	p := e.Read(body, true, "", Limits{MediaTokens: 10})
	if want := 20*256 + 10; p.Tokens != want {
		t.Errorf("Tokens = %d, want %d", p.Tokens, want)
	}
	p = e.Read(body, true, "", Limits{MaxPromptTokens: 1024})
	if p.Tokens != 1024 || len(p.Blocks) != 4 || p.TextBytes != 20*1024 {
		t.Errorf("Tokens, blocks, TextBytes = %d, %d, %d, want 1024, 4, 20480", p.Tokens, len(p.Blocks), p.TextBytes)
	}
	// enough items on both sides that their product is more than an int64
	side := "[" + strings.Repeat("1,", 40_000) + "1]"
	pairs, _ := Lookup("/score")
	sides := `{"data_1":[` + strings.Repeat(side+",", 20) + side + `],"data_2":[` + strings.Repeat(side+",", 19) + side + `]}`
	if p := pairs.Read([]byte(sides), true, "", Limits{}); p.Tokens != DefaultMaxPromptTokens || p.TokenIDs != 2*20*21*40_001 {
		t.Errorf("Tokens, TokenIDs = %d, %d, want %d, %d", p.Tokens, p.TokenIDs, DefaultMaxPromptTokens, 2*20*21*40_001)
	}
	if got := (tally{textBytes: 1 << 40}).times(1 << 30).plus(tally{textBytes: 1 << 59}); got.tokens() <= 0 {
		t.Errorf("times overflows to %v", got)
	}
}

// TestImageIsNotText: five megabytes of image and ten words are one image and
// ten words.
func TestImageIsNotText(t *testing.T) {
	p := read(t, "/v1/chat/completions", string(imageBody(5_000_000)))
	words := int64(len("what is on this picture of the old town hall please"))
	if p.TextBytes != words || p.Tokens != int(words/4)+DefaultMediaTokens {
		t.Errorf("TextBytes, Tokens = %d, %d, want %d, %d", p.TextBytes, p.Tokens, words, words/4+DefaultMediaTokens)
	}
}

// TestCutBody: at every cut the part is read as far as it goes.
func TestCutBody(t *testing.T) {
	e, _ := Lookup("/v1/chat/completions")
	whole := []byte(`{"model":"m","tools":[{"name":"f"}],"messages":[{"role":"system","content":"\u00e9\n` + long("a", 3) + `"},` +
		`{"role":"user","content":[{"type":"text","text":"` + long("b", 3) + `"},{"type":"image_url","image_url":{"url":"http://i"}}]},` +
		`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":[1]}"}}]},{"role":"tool","content":"` + long("c", 3) + `"}],"stream":true}`)
	full := e.Read(whole, true, "", Limits{})
	for i := 1; i < len(whole); i++ {
		p := e.Read(whole[:i], false, "", Limits{})
		if !p.Parsed || p.Tokens < i/4 || shared(p, full) != len(p.Blocks) {
			t.Fatalf("cut at %d: Parsed, Tokens = %v, %d, and %d of %d blocks are the whole's", i, p.Parsed, p.Tokens, shared(p, full), len(p.Blocks))
		}
	}
	if p := e.Read(whole[:9000], false, "", Limits{}); len(p.Blocks) < 5 {
		t.Errorf("%d blocks of the first 9000 bytes, want 5 or more", len(p.Blocks))
	}
	// the model is behind the cut, or in it: whose blocks these are is not known
	for _, end := range []string{`"`, `"],"mod`, `"],"model":`, `"],"model":"a`} {
		p := e.Read([]byte(`{"session_id":"s","messages":["`+long("a", 3)+end), false, "", Limits{})
		if !p.Parsed || p.Model != "" || p.Blocks != nil || p.Hints == nil {
			t.Errorf("cut at %q: Read = %+v, want hints and neither model nor blocks", end, p)
		}
	}
	if p := e.Read([]byte(`{"messages":[}`), false, "", Limits{}); p.Parsed {
		t.Error("a part that is no JSON is Parsed")
	}
}

// TestDeepContent: content in content in content is followed for a few levels,
// and costs no time beyond.
func TestDeepContent(t *testing.T) {
	const levels = 200
	body := `{"messages":[` + strings.Repeat(`{"content":[`, levels) + `{"text":"` + long("a", 500) + `"}` + strings.Repeat(`]}`, levels) + `]}`
	if p := read(t, "/v1/chat/completions", body); !p.Parsed || p.TextBytes != 0 {
		t.Errorf("Parsed, TextBytes = %v, %d, want true, 0", p.Parsed, p.TextBytes)
	}
}

func TestReadKeepsBodyAndSharesNothing(t *testing.T) {
	body := chatBody(t, 8_000)
	before := bytes.Clone(body)
	e, _ := Lookup("/v1/chat/completions")
	p := e.Read(body, true, "", Limits{})
	if !bytes.Equal(body, before) {
		t.Fatal("Read changed the body")
	}
	clear(body)
	if p.Model != "qwen3" {
		t.Errorf("Model = %q after the body was cleared, want qwen3", p.Model)
	}
}
