// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/internal/crew"
	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

func TestParse(t *testing.T) {
	s, err := parse([]string{"-rate", "0.5,1", "-policies", "random,llm_loadaware"})
	if err != nil || len(s.rates) != 2 || s.rates[1] != 1 || len(s.policies) != 2 {
		t.Errorf("parse() = %+v, %v", s, err)
	}
	for _, args := range [][]string{
		{"-rate", "fast"},
		{"-rate", "0"},
		{"-rate", "-1"},
		{"-rate", "NaN"},
		{"-engines", "0"},
		{"-speed", "0"},
		{"-measure", "0s"},
		{"-kv-tokens", "0"},
		{"-caddys", "0"},
		{"-caddys", "two"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%v) succeeded", args)
		}
	}
}

// A prompt that continues another one must continue its text.
func TestTextFollowsTheBlocks(t *testing.T) {
	first := text(&workload.Request{Tokens: 600, Blocks: []uint64{1, 2}, Writer: 7})
	if len(first) != 600*4 {
		t.Errorf("text has %d bytes, want %d", len(first), 600*4)
	}
	next := text(&workload.Request{Tokens: 1000, Blocks: []uint64{1, 2, 3}, Writer: 7})
	if !strings.HasPrefix(next, first[:2*blockTokens*4]) {
		t.Error("the next prompt does not begin with the whole blocks of the first")
	}
	if other := text(&workload.Request{Tokens: 600, Blocks: []uint64{4, 5}, Writer: 7}); strings.HasPrefix(other, first[:40]) {
		t.Error("prompts of different blocks begin alike")
	}
}

func TestMain(m *testing.M) {
	crew.Main()
	os.Exit(m.Run())
}

// One agent's first turns through Caddy, or through two that share: every request
// ends well and is counted. Through one, each after the first finds the one before it
// cached; through two, so fast turns may come before the news of the last one.
func TestAgentThroughCaddy(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		if hitRate, spread := followAgent(t, "llm_loadaware", 1); hitRate < 0.4 || spread != 2 {
			t.Errorf("hit rate %v, spread %v, want more than half of the tokens cached, all on one of two servers", hitRate, spread)
		}
	})
	t.Run("two", func(t *testing.T) { followAgent(t, "llm_loadaware share", 2) })
}

func followAgent(t *testing.T, policy string, caddys int) (hitRate, spread float64) {
	s, err := parse([]string{"-engines", "2", "-speed", "100", "-warm-up", "0s"})
	if err != nil {
		t.Fatal(err)
	}
	st, d, err := s.open(policy, caddys)
	redistest.Check(t, err)
	defer func() {
		if err := st.stop(); err != nil {
			t.Error(err)
		}
	}()
	blocks := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	d.follow(t.Context(), &workload.Script{
		Steps: make([]workload.Step, 3),
		Request: func(step int) workload.Request {
			n := 4 + 2*step
			return workload.Request{Session: 1, Tokens: n * blockTokens, Blocks: blocks[:n], Output: 4, Writer: 1}
		},
	})
	r := d.measures.result()
	if r.Requests != 3 || r.Failed != 0 || r.P99 <= 0 {
		t.Errorf("result() = %+v, want 3 requests, none of them failed: %v", r, d.measures.lastErr)
	}
	return engines(st.hosts)
}
