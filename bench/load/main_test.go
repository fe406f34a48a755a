// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/workload"
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

// One short run through Caddy: every request ends well, and something is cached.
func TestMeasurePolicy(t *testing.T) {
	s, err := parse([]string{"-engines", "2", "-speed", "30", "-warm-up", "0s", "-measure", (3 * time.Minute).String()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.measurePolicy(t.Context(), "llm_loadaware", 0.2)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests == 0 || r.Failed != 0 || r.HitRate == 0 {
		t.Errorf("measurePolicy() = %+v, want requests, none of them failed, and some prompts cached", r)
	}
}
