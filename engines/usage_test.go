// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"strings"
	"testing"
)

const (
	chatEnd = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}],"usage":null}

data: {"id":"c","choices":[],"usage":{"prompt_tokens":120,"total_tokens":150,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":96}}}

data: [DONE]

`
	messageEnd = `event: message_start
data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":24,"output_tokens":0,"cache_read_input_tokens":96}}}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":30}}

event: message_stop
data: {"type":"message_stop"}

`
	responseEnd = `"status":"completed","text":null,"usage":{"input_tokens":120,"input_tokens_details":` +
		`{"cached_tokens":96,"input_tokens_per_turn":[],"cached_tokens_per_turn":[]},"output_tokens":30,` +
		`"output_tokens_details":{"reasoning_tokens":8},"total_tokens":150},"user":null}`
)

func TestReadUsage(t *testing.T) {
	cached := func(prompt int, tokens float64) Usage {
		return Usage{PromptTokens: prompt, CachedTokens: Known(tokens)}
	}
	prompt := func(tokens int) Usage { return Usage{PromptTokens: tokens} }
	tests := []struct {
		name, tail string
		want       Usage // none if empty
	}{
		{"a chat stream", chatEnd, cached(120, 96)},
		{"messages", messageEnd, cached(120, 96)},
		{"a response", responseEnd, cached(120, 96)},
		{"a body", `ing else."}}],"usage":{"prompt_tokens":12,"total_tokens":20,"completion_tokens":8,"prompt_tokens_details":null},"x":1}`, prompt(12)},
		{"embeddings", `0.25]}],"usage":{"prompt_tokens":12,"total_tokens":12,"completion_tokens":0}}`, prompt(12)},
		{"laid out", "\"usage\" : {\n  \"prompt_tokens\": 12,\r\n\t\"prompt_tokens_details\": {\"cached_tokens\": 0}\n}\n}\n", cached(12, 0)},
		{"no details", `"usage":{"prompt_tokens":12,"prompt_tokens_details":{}}`, prompt(12)},
		{"more cached than there is", `"usage":{"prompt_tokens":12,"prompt_tokens_details":{"cached_tokens":13}}`, prompt(12)},

		{"messages that wrote to the cache", `"usage":{"input_tokens":4,"cache_read_input_tokens":16,"cache_creation_input_tokens":80}`, cached(100, 16)},
		{"messages that only wrote", `"usage":{"input_tokens":4,"cache_creation_input_tokens":80}`, prompt(84)},
		{"messages all from the cache", `"usage":{"input_tokens":0,"cache_read_input_tokens":16}`, cached(16, 16)},
		{"messages without a cache", `"usage":{"input_tokens":4,"cache_read_input_tokens":null,"output_tokens":1}`, prompt(4)},
		{"a delta with the prompt", `"usage":{"input_tokens":1}}` + "\n" + `data: {"usage":{"input_tokens":4,"output_tokens":9}}`, prompt(4)},
		{"a delta with no prompt", `"usage":{"input_tokens":4}}` + "\n" + `data: {"usage":{"input_tokens":0,"output_tokens":9}}`, prompt(4)},
		{"a response without details", `"usage":{"input_tokens":4,"input_tokens_details":{}}`, prompt(4)},

		{"the last of several", `"usage":{"prompt_tokens":1}},{"usage":{"prompt_tokens":2}},{"usage":null},{"usage":{}}`, prompt(2)},
		{"a cut one behind it", `"usage":{"prompt_tokens":1}},{"usage":{"prompt_tokens":2`, prompt(1)},
		{"a cut string behind it", `"usage":{"prompt_tokens":1}},{"usage":{"prompt`, prompt(1)},
		{"a cut event before it", "data: {\"usage\":{\"prompt_tokens\":1,\n\ndata: {\"usage\":{\"prompt_tokens\":2}}\n", prompt(2)},
		{"a cut string before it", "data: {\"usage\":{\"promp\n\ndata: {\"usage\":{\"prompt_tokens\":2}}\n", prompt(2)},
		{"braces in strings", `"usage":{"a":"}\"}","prompt_tokens":2}`, prompt(2)},
		{"a usage in a usage", `"usage":{"prompt_tokens":2,"x":{"usage":{"prompt_tokens":3}}}`, prompt(2)},

		{"generated text", `"content":"say \"usage\":{\"prompt_tokens\":5} now"`, Usage{}},
		{"arguments", `"arguments":"{\"usage\":{\"prompt_tokens\":5}}"`, Usage{}},
		{"a key that ends so", `"\"usage":{"prompt_tokens":5}`, Usage{}},
		{"a longer key", `"x_usage":{"prompt_tokens":5}`, Usage{}},
		{"a value", `"type":"usage","prompt_tokens":5`, Usage{}},
		{"the end of a key", `usage":{"prompt_tokens":5}`, Usage{}},
		{"a list", `"usage":[{"prompt_tokens":5}]`, Usage{}},
		{"a key alone", `"usage"`, Usage{}},
		{"a key and a colon", `"usage": `, Usage{}},
		{"no numbers", `"usage":{"output_tokens":5,"cache_read_input_tokens":5}`, Usage{}},
		{"audio", `"usage":{"type":"duration","seconds":5}`, Usage{}},
		{"negative", `"usage":{"prompt_tokens":-5}`, Usage{}},
		{"negative in part", `"usage":{"input_tokens":5,"cache_read_input_tokens":-1}`, Usage{}},
		{"negative cached", `"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}`, Usage{}},
		{"fractional", `"usage":{"prompt_tokens":5.5}`, Usage{}},
		{"text", `"usage":{"prompt_tokens":"5"}`, Usage{}},
		{"nothing", `"usage":{"prompt_tokens":0}`, Usage{}},
		{"the most", `"usage":{"prompt_tokens":100000000}`, prompt(100_000_000)},
		{"too many", `"usage":{"prompt_tokens":100000001}`, Usage{}},
		{"too many together", `"usage":{"input_tokens":60000000,"cache_read_input_tokens":60000000}`, Usage{}},
		{"too many for a number", `"usage":{"prompt_tokens":99999999999999999999}`, Usage{}},
		{"no JSON", `"usage":{"prompt_tokens":5,}`, Usage{}},
		{"the wrong bracket", `"usage":{"prompt_tokens":5]`, Usage{}},
		{"", "", Usage{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, ok := ReadUsage([]byte(test.tail))
			if got != test.want || ok != (test.want != Usage{}) {
				t.Errorf("ReadUsage(%s) = %+v, %v, want %+v", test.tail, got, ok, test.want)
			}
		})
	}
}

// TestReadUsageAnyTail holds that the usage is found wherever the tail begins,
// as long as it begins before it.
func TestReadUsageAnyTail(t *testing.T) {
	for _, end := range []string{chatEnd, responseEnd} {
		key := strings.Index(end, `"usage":{`)
		for from := range end {
			_, ok := ReadUsage([]byte(end[from:]))
			if want := from <= key; ok != want {
				t.Errorf("ReadUsage(%s) = %v, want %v", end[from:], ok, want)
			}
		}
	}
}

func TestReadUsageAllocates(t *testing.T) {
	tail := []byte(strings.Repeat(`data: {"choices":[{"delta":{"content":"a"}}],"usage":null}`+"\n\n", 60) + chatEnd)
	if n := testing.AllocsPerRun(100, func() { ReadUsage(tail) }); n > 20 {
		t.Errorf("ReadUsage() allocated %v times, want a few", n)
	}
}

func BenchmarkReadUsage(b *testing.B) {
	for name, tail := range map[string]string{
		"stream":  strings.Repeat(`data: {"choices":[{"delta":{"content":"a"}}],"usage":null}`+"\n\n", 60) + chatEnd,
		"hostile": strings.Repeat(`"usage":{`, 455),
		"broken":  strings.Repeat(`"usage":{}`, 410),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(tail)))
			b.ReportAllocs()
			for b.Loop() {
				ReadUsage([]byte(tail))
			}
		})
	}
}
