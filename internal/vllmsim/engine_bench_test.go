// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"testing"
	"time"
)

// trace is one arrival per entry, all from agent sessions whose prompts grow to about 100,000 tokens.
func trace(requests, sessions, promptTokens, blockTokens int) []*Request {
	chain := make([][]uint64, sessions)
	for s := range chain {
		chain[s] = blocks(uint64(s+1), (promptTokens+requests/sessions*512)/blockTokens+1)
	}
	list := make([]*Request, requests)
	for i := range list {
		s, turn := i%sessions, i/sessions
		tokens := promptTokens + turn*512
		full := tokens / blockTokens
		list[i] = &Request{
			PromptTokens: tokens,
			Blocks:       chain[s][:full],
			OutputBlocks: chain[s][full : full+200/blockTokens],
			OutputTokens: 200,
		}
	}
	return list
}

// replay drives an engine through a trace with one arrival per gap and returns the virtual time it took.
func replay(e *Engine, list []*Request, gap time.Duration) time.Duration {
	var now time.Duration
	for next := 0; next < len(list) || !e.Idle(); {
		for next < len(list) && time.Duration(next)*gap <= now {
			if err := e.Submit(time.Duration(next)*gap, list[next]); err != nil {
				panic(err)
			}
			next++
		}
		if e.Idle() {
			now = time.Duration(next) * gap
			continue
		}
		now += e.Step(now).Duration
	}
	return now
}

// BenchmarkReplay replays 2,000 requests of about 100,000 tokens in blocks of 64: "warm" are five sessions that fit in
// the cache, "cold" are eighty that evict each other.
func BenchmarkReplay(b *testing.B) {
	for name, sessions := range map[string]int{"warm": 5, "cold": 80} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			list := trace(2000, sessions, 80_000, 64)
			var e *Engine
			for b.Loop() {
				e = New(Config{BlockTokens: 64, KVTokens: 3_000_000})
				replay(e, list, 2*time.Second)
			}
			s := e.Stats()
			b.ReportMetric(float64(s.PrefixHits)/float64(s.PrefixQueries), "hit-share")
			b.ReportMetric(float64(s.Steps), "steps")
		})
	}
}
