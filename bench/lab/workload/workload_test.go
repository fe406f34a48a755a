// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"
	"time"
)

const mooncakeLines = `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 2000, "input_length": 1024, "output_length": 6, "hash_ids": [0, 7]}
`

func TestReadMooncake(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(mooncakeLines)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"plain": mooncakeLines, "gzip": zipped.String()} {
		t.Run(name, func(t *testing.T) {
			trace, err := ReadTrace(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			arrivals := trace.Replay(Replay{Rate: 0.5, BlockTokens: 256})
			_, first, _ := arrivals()
			at, second, _ := arrivals()
			a, b := first.Request(0), second.Request(0)
			if len(a.Blocks) != 4 || len(b.Blocks) != 4 || a.Tokens != 1100 || a.Output != 5 {
				t.Errorf("requests are %+v and %+v, want 4 blocks each, and 1,100 and 5 tokens in the first", a, b)
			}
			if got := common(a.Blocks, b.Blocks); got != 2 {
				t.Errorf("the prompts have %v blocks in common, want 2", got)
			}
			if at != 4*time.Second {
				t.Errorf("the second request comes at %v at half the rate, want 4s", at)
			}
		})
	}
}

// recordedLines are two sessions with the same 128 tokens of tools and system
// prompt; the first has a sub-agent beside its second wait.
const recordedLines = `{"tool_tokens": 64, "system_tokens": 64, "requests": [
 {"type": "s", "in": 300, "out": 9, "think_time": 0, "api_time": 2, "hash_runs": [[1, 4]]},
 {"type": "subagent", "tool_tokens": 0, "system_tokens": 64, "requests": [
  {"type": "n", "in": 130, "out": 3, "think_time": 0, "hash_runs": [[900, 2]]}]},
 {"type": "n", "in": 520, "out": 8, "think_time": 1000, "api_time": 2, "hash_runs": [[1, 3], [70, 5]]},
 {"type": "subagent", "tool_tokens": 0, "system_tokens": 64, "requests": [
  {"type": "n", "in": 130, "out": 3, "think_time": 0, "hash_runs": [[900, 2]]}]}]}
{"tool_tokens": 64, "system_tokens": 64, "requests": [
 {"type": "s", "in": 256, "out": 9, "think_time": 0, "api_time": 2, "hash_runs": [[1, 4]]}]}
`

func TestReadRecorded(t *testing.T) {
	read, err := ReadTrace(strings.NewReader(strings.ReplaceAll(recordedLines, "\n ", " ")))
	if err != nil {
		t.Fatal(err)
	}
	trace := read.(Recorded)
	o := Replay{BlockTokens: 64, MaxThink: time.Minute}
	s := trace[0].script(o, 5, 5)
	if len(s.Steps) != 2 || len(s.Steps[1].Beside) != 1 || s.Steps[1].Think != time.Minute {
		t.Fatalf("steps are %+v, want 2, the second after a minute and beside one sub-agent", s.Steps)
	}
	first, second := s.Request(0), s.Request(1)
	if got := common(first.Blocks, second.Blocks); got != 3 || len(second.Blocks) != 8 {
		t.Errorf("turns have %v of %v blocks in common, want 3 of 8", got, len(second.Blocks))
	}
	if !first.Streamed || second.Streamed || first.Session != 5 {
		t.Errorf("turns are %+v and %+v, want the first streamed, the second not, both of session 5", first, second)
	}
	other := trace[1].script(o, 6, 6).Request(0)
	if got := common(first.Blocks, other.Blocks); got != 2 {
		t.Errorf("sessions have %v blocks in common, want the 2 of tools and system prompt", got)
	}
	o.BlockTokens = 256
	if got := trace[0].script(o, 5, 5).Request(1).Blocks; len(got) != 2 {
		t.Errorf("520 tokens have %v blocks of 256, want 2", len(got))
	}
}

func TestReadTraceErrors(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"no JSON":        "hello\n",
		"unknown format": `{"a": 1}` + "\n",
		"later line":     mooncakeLines + "{\n",
		"no request":     `{"requests": []}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if trace, err := ReadTrace(strings.NewReader(text)); err == nil {
				t.Errorf("ReadTrace() = %v, want an error", trace)
			}
		})
	}
}

// common is how many leading blocks two prompts share.
func common(a, b []uint64) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestArrivalsAreDeterministicAndOrdered(t *testing.T) {
	workloads := map[string]func() Arrivals{
		"agents":       Agents{Rate: 0.1, BlockTokens: 256, Seed: 3, Within: time.Minute}.Arrivals,
		"documents":    Documents{Rate: 1, Count: 50, BlockTokens: 256, Seed: 3}.Arrivals,
		"hot document": HotDocument{Rate: 1, BlockTokens: 256, Seed: 3}.Arrivals,
		"unshared":     Unshared{Rate: 1, BlockTokens: 256, Seed: 3}.Arrivals,
		"long outputs": LongOutputs{Rate: 1, BlockTokens: 256, Seed: 3}.Arrivals,
		"bursts":       Bursts{Rate: 1, Size: 3, Shared: 512, Own: 600, BlockTokens: 256}.Arrivals,
	}
	for name, arrivals := range workloads {
		t.Run(name, func(t *testing.T) {
			one, two := arrivals(), arrivals()
			last := time.Duration(0)
			for range 200 {
				at, a, _ := one()
				sameAt, b, _ := two()
				q, same := a.Request(0), b.Request(0)
				if at != sameAt || q.Tokens != same.Tokens || !slices.Equal(q.Blocks, same.Blocks) {
					t.Fatalf("a second run has another request at %v", at)
				}
				if at < last {
					t.Fatalf("a client comes at %v after one at %v", at, last)
				}
				if len(q.Blocks) != q.Tokens/256 {
					t.Fatalf("a prompt of %d tokens has %d blocks", q.Tokens, len(q.Blocks))
				}
				last = at
			}
		})
	}
}

// Every prompt of a session repeats the one before and its answer.
func TestAgentsExtendTheirPrompts(t *testing.T) {
	s := Agents{BlockTokens: 64}.session(9)
	var before []uint64
	for i := range s.Steps {
		q := s.Request(i)
		if got := common(before, q.Blocks); got != len(before) {
			t.Fatalf("turn %d repeats %d of %d blocks", i, got, len(before))
		}
		before = append(slices.Clone(q.Blocks), q.Answer...)
	}
}

func TestScriptFrom(t *testing.T) {
	s := &Script{
		Steps:   []Step{{Think: 0, Took: 2 * time.Second}, {Think: 10 * time.Second, Took: 2 * time.Second}},
		Request: func(step int) Request { return Request{Tokens: step} },
	}
	tests := []struct {
		age, think time.Duration
		step       int
	}{
		{0, 0, 0},
		{time.Second, 11 * time.Second, 1},
		{12 * time.Second, 0, 1},
	}
	for _, test := range tests {
		rest := s.from(test.age)
		if got := rest.Request(0).Tokens; got != test.step || rest.Steps[0].Think != test.think {
			t.Errorf("from(%v) begins with step %v after %v, want %v after %v", test.age, got, rest.Steps[0].Think, test.step, test.think)
		}
	}
	if rest := s.from(20 * time.Second); rest != nil {
		t.Errorf("from(20s) = %v, want nil", rest)
	}
}
