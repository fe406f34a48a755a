// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/internal/redisserver/redistest"
)

// TestMain runs Caddy where the command has started this program for that.
func TestMain(m *testing.M) {
	if isCaddy(os.Args) {
		main()
		return
	}
	os.Exit(m.Run())
}

// readResults reads what a run has written.
func readResults(t *testing.T, file string) (r results) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParse(t *testing.T) {
	s, err := parse([]string{"-rounds", "3", "-policy", "random"})
	if err != nil || s.rounds != 3 || s.policies != [2]string{"least_conn", "random"} {
		t.Errorf("parse() = %+v, %v", s, err)
	}
	for _, args := range [][]string{
		{"-rounds", "0"},
		{"-turn", "0s"},
		{"-clients", "0"},
		{"-streams", "0"},
		{"-transfer", "0"},
		{"-memory-rounds", "0"},
		{"-timeout", "0s"},
		{"-rate", "0"},
		{"-viewers", "-1"},
		{"-viewers", "1001"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%v) succeeded", args)
		}
	}
}

// Bodies have the size that they are named by, are JSON, and differ early.
func TestPrompts(t *testing.T) {
	for _, size := range []int{1000, 1001, 1017, 50_000, 500_000} {
		var texts [2]string
		for i := range texts {
			reader, length := newPrompt(size, true).body()
			text, err := io.ReadAll(reader)
			if err != nil || len(text) != size || length != int64(size) || !json.Valid(text) {
				t.Fatalf("body of %d bytes: %d bytes, %d announced, valid %v, %v", size, len(text), length, json.Valid(text), err)
			}
			texts[i] = string(text)
		}
		if texts[0][:150] == texts[1][:150] {
			t.Error("two bodies begin alike")
		}
	}
}

func TestCompare(t *testing.T) {
	of := func(n int, time1 time.Duration, cpu time.Duration) turn {
		times := make([]time.Duration, n)
		for i := range times {
			times[i] = time1
		}
		return turn{elapsed: time.Second, times: times, used: usage{CPU: cpu}}
	}
	ms := time.Millisecond
	c := compare(kind{}, [2][]turn{
		{of(10, 2*ms, 10*ms), of(20, 1*ms, 20*ms), of(100, 3*ms, 100*ms)},
		{of(5, 4*ms, 10*ms), of(10, 3*ms, 20*ms), of(100, 9*ms, 100*ms)},
	})
	if c.RateRatio != 0.5 || c.CPURatio != 2 || c.CPUMore != 1000 || c.P50More != 2000 {
		t.Errorf("compare() = %+v", c)
	}
	if a := c.Sides[0]; a.Requests != 130 || a.Rate != 20 || a.P50 != 3000 {
		t.Errorf("first side = %+v", a)
	}
}

// Everything is measured once, and a little of it.
func TestMeasure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	err := measure([]string{
		"-rounds", "1", "-turn", "1ms", "-clients", "2", "-streams", "4",
		"-transfer", "1000000", "-memory-rounds", "1", "-timeout", "2m", "-json", file,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := readResults(t, file)
	if len(r.Requests) != 5 || r.Memory == nil {
		t.Fatalf("results = %+v", r)
	}
	for _, c := range r.Requests {
		for side, f := range c.Sides {
			if f.Requests < c.Clients || f.Rate <= 0 || f.P99 < f.P50 || f.P50 <= 0 || f.Mallocs <= 0 {
				t.Errorf("%s through %s: %+v", c.Kind, r.Policies[side], f)
			}
		}
	}
	var out strings.Builder
	if err := r.print(&out); err != nil || !strings.Contains(out.String(), "500 KB") {
		t.Errorf("print() = %v: %s", err, out.String())
	}
}

// The live page is measured without viewers, with one and with some.
func TestMeasurePage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	err := measure([]string{
		"-viewers", "3", "-rounds", "1", "-turn", "1100ms", "-rate", "100", "-clients", "4", "-timeout", "2m", "-json", file,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := readResults(t, file)
	if len(r.Page) != 3 {
		t.Fatalf("results = %+v", r)
	}
	for i, want := range []int{0, 1, 3} {
		f := r.Page[i]
		if f.Viewers != want || f.Rate <= 0 || (want > 0) != (f.Events > 0 && f.Bytes > 1000) {
			t.Errorf("%+v, want %d viewers, requests, and events only for viewers", f, want)
		}
	}
	if r.Page[0].More != 0 {
		t.Errorf("%v %% more than nothing", r.Page[0].More)
	}
}

// A policy that Caddy does not know ends the run with an error.
func TestUnknownPolicy(t *testing.T) {
	if err := measure([]string{"-policy", "nonesuch", "-timeout", "1m"}); err == nil {
		t.Error("measure() succeeded")
	}
}

// Sharing is measured against the same policy without it, with what Redis does.
func TestMeasureSharing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	err := measure([]string{
		"-against", "llm_loadaware", "-policy", "llm_loadaware share", "-rounds", "1", "-turn", "1ms", "-clients", "2", "-streams", "4",
		"-transfer", "1000000", "-memory-rounds", "1", "-timeout", "2m", "-json", file,
	})
	redistest.Check(t, err)
	r := readResults(t, file)
	if r.RedisCommands <= 0 || r.Requests[0].Sides[1].Requests == 0 {
		t.Errorf("results = %+v, want commands of Redis", r)
	}
}
