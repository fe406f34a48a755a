// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// short are flags for a run of less than a second.
func short(more ...string) []string {
	return append([]string{"-warmup", "30s", "-duration", "2m", "-seeds", "2"}, more...)
}

func TestReportsAreEqual(t *testing.T) {
	dir := t.TempDir()
	var files [2][]byte
	for i := range files {
		name := filepath.Join(dir, "report.json")
		args := short("-rule", "random,load-aware", "-rates", "0.02,0.03", "-json", name, "-plot", filepath.Join(dir, "plot.svg"))
		if err := run(args); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Errorf("equal flags write\n%s\nand then\n%s", files[0], files[1])
	}
	if plot, err := os.ReadFile(filepath.Join(dir, "plot.svg")); err != nil || !bytes.Contains(plot, []byte("load-aware")) {
		t.Errorf("the plot does not name the rule: %v", err)
	}
}

func TestCapacityIsBetweenUnderAndOver(t *testing.T) {
	s, err := parse(short("-workload", "unshared", "-rule", "load-aware", "-capacity"))
	if err != nil {
		t.Fatal(err)
	}
	report := findCapacities(s, newProgress(&bytes.Buffer{}))
	c := report.Rules[0].Capacity
	if c.Mean < 3 || c.Mean > 8 || c.Least > c.Mean || c.Most < c.Mean {
		t.Errorf("capacity = %+v, want about 5 requests per second", c)
	}
	for n, rate := range c.BySeed {
		if r := s.once("load-aware", rate/step/step, s.seedOf(n)); !s.under(r) {
			t.Errorf("TTFT p95 is %.2f s under the capacity", r.TTFT.P95)
		}
		if r := s.once("load-aware", rate*step*step, s.seedOf(n)); s.under(r) {
			t.Errorf("TTFT p95 is %.2f s over the capacity", r.TTFT.P95)
		}
	}
}

// Routers that share place as one does, and those that do not are worse.
func TestRouters(t *testing.T) {
	p95 := map[string]float64{}
	for name, args := range map[string][]string{
		"one":     {},
		"shared":  {"-routers", "3"},
		"nothing": {"-routers", "3", "-share", "nothing"},
	} {
		s, err := parse(append(args, strings.Fields("-rule load-aware -rate 0.08 -kv 3000000 -warmup 2m -duration 4m -seeds 2")...))
		if err != nil {
			t.Fatal(err)
		}
		report := sweep(s, newProgress(&bytes.Buffer{}))
		p95[name] = report.Rules[0].Points[0].Result.TTFT.P95
	}
	if p95["shared"] > 1.5*p95["one"] || p95["nothing"] < 3*p95["one"] {
		t.Errorf("TTFT p95 = %v, want it alike with three routers that share and much longer with three that do not", p95)
	}
}

func TestFlagErrors(t *testing.T) {
	tests := []struct{ args, want string }{
		{"-workload nothing", "unrecognized workload 'nothing'"},
		{"-workload trace", "unrecognized workload 'trace'"},
		{"-rule best", "unrecognized rule 'best'"},
		{"-scene storm", "unrecognized scene 'storm'"},
		{"-rates 1,x", "invalid rate 'x'"},
		{"-block-tokens 100", "block-tokens must be"},
		{"-engines 1 -scene join", "engines must be at least 2"},
		{"-hold -1", "hold and overtake must not"},
		{"-hold 8192 -scene hang", "hold cannot be used with scene"},
		{"-routers 0", "routers must be at least 1"},
		{"-routers 2 -scene restart", "routers must be 1"},
		{"-share all", "unrecognized share 'all'"},
		{"-seeds 0", "seeds must be at least 1"},
		{"-rate -1", "rate must be over 0"},
		{"-trace missing.jsonl", "missing.jsonl"},
		{"more", "unexpected argument 'more'"},
	}
	for _, test := range tests {
		if _, err := parse(strings.Fields(test.args)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("parse(%s) = %v, want %q in it", test.args, err, test.want)
		}
	}
}
