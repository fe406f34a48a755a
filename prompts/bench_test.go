// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// chatBody is a chat request of about that many bytes, as a coding agent sends
// it: tools, a long system prompt, then code in tool results, its quotes and
// line ends escaped.
func chatBody(tb testing.TB, bytes int) []byte {
	tb.Helper()
	rnd := rand.New(rand.NewPCG(1, uint64(bytes)))
	code := func(n int) string {
		var s strings.Builder
		for s.Len() < n {
			fmt.Fprintf(&s, "\tif err := fn%d(ctx, \"name%d\"); err != nil {\n\t\treturn fmt.Errorf(\"step %d: %%w\", err)\n\t}\n",
				rnd.IntN(1000), rnd.IntN(1000), rnd.IntN(1000))
		}
		return s.String()
	}
	messages := []any{
		map[string]any{"role": "system", "content": "You are an agent. " + code(bytes/10)},
		map[string]any{"role": "user", "content": "Find the bug. Füge Tests hinzu."},
	}
	for size := bytes / 10; size < bytes*9/10; size += 4200 {
		messages = append(messages,
			map[string]any{
				"role": "assistant", "content": "Let me read that file.",
				"tool_calls": []any{map[string]any{
					"id": "call_1", "type": "function",
					"function": map[string]any{"name": "read", "arguments": `{"path":"main.go"}`},
				}},
			},
			map[string]any{"role": "tool", "tool_call_id": "call_1", "content": code(min(3500, bytes/2))},
		)
	}
	b, err := json.Marshal(map[string]any{
		"model": "qwen3", "stream": true, "temperature": 0.2, "messages": messages,
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "read", "description": "Reads a file.",
			"parameters": map[string]any{"type": "object", "properties": map[string]any{"path": map[string]any{"type": "string"}}},
		}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// imageBody is a chat request with ten words and an image of that many bytes.
func imageBody(bytes int) []byte {
	return []byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is on this picture of the old town hall please"},` +
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("iVBORw0K", bytes/8) + `"}}]}]}`)
}

func benchmarkRead(b *testing.B, path string, body []byte) {
	b.Helper()
	e, ok := Lookup(path)
	if !ok {
		b.Fatalf("Lookup(%q) does not know it", path)
	}
	if p := e.Read(body, true, "application/json", Limits{}); !p.Parsed {
		b.Fatal("the body is not parsed")
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		e.Read(body, true, "application/json", Limits{})
	}
}

func BenchmarkRead(b *testing.B) {
	const chat = "/v1/chat/completions"
	b.Run("chat 5 KB", func(b *testing.B) { benchmarkRead(b, chat, chatBody(b, 5_000)) })
	b.Run("chat 50 KB", func(b *testing.B) { benchmarkRead(b, chat, chatBody(b, 50_000)) })
	b.Run("chat 500 KB", func(b *testing.B) { benchmarkRead(b, chat, chatBody(b, 500_000)) })
	b.Run("image 5 MB", func(b *testing.B) { benchmarkRead(b, chat, imageBody(5_000_000)) })
	ids := `{"model":"m","prompt":[` + strings.Repeat("12345,", 80_000) + `1]}`
	b.Run("ids 480 KB", func(b *testing.B) { benchmarkRead(b, "/v1/completions", []byte(ids)) })
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Lookup("/openai/v1/chat/completions")
	}
}

// BenchmarkValid is the price of knowing that a body is JSON.
func BenchmarkValid(b *testing.B) {
	body := chatBody(b, 500_000)
	for _, v := range validators {
		b.Run(v.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if !v.valid(body) {
					b.Fatal("the body is not valid")
				}
			}
		})
	}
}

// BenchmarkOthers reads the same chat bodies, validation included, with the
// JSON packages that are not used.
func BenchmarkOthers(b *testing.B) {
	for _, o := range others {
		for _, size := range []int{5_000, 500_000} {
			body := chatBody(b, size)
			b.Run(fmt.Sprintf("%s %d KB", o.name, size/1000), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					o.read(body)
				}
			})
		}
	}
}
