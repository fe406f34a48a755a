// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/caddy-llm/loadaware/engines"
)

// Cases of docs/cases.md about what speaks against an upstream, and for how long.

// A worker that failed every request was chosen for the next one again, for it
// was idle and warm.
func TestCaseC39FailingUpstreamIsSkippedThoughWarm(t *testing.T) {
	b := newBed(3)
	blocks := text(1, 8192, 0, 0)
	warm := Request{Session: 7, Tokens: 8192, Blocks: blocks, Prefills: true}
	b.serve(warm, 0)
	for range 2 {
		p, _ := b.place(prompt(100, nil), 0)
		p.End(CauseError, b.now)
	}
	for i := range 20 {
		req := prompt(8192, blocks)
		if i == 0 {
			req = warm
		}
		if at := b.serve(req); at == 0 {
			t.Errorf("request %d went to the upstream that has just failed twice", i)
		}
		b.now = b.now.Add(leastPause / 20)
	}
}

// Metrics were read every 15 seconds and believed for 200 ms, and an upstream
// without any counted as full, which was nearly always. What is too old says
// nothing.
func TestCaseD6StaleReportsAreUnknown(t *testing.T) {
	b := known(2)
	b.loaded(0, 100_000)
	b.report(1, engines.Report{KVUsage: engines.Known(0.99), Running: engines.Known(0), Waiting: engines.Known(50)})
	if u := b.view(t, 1); u.State != "full" || u.Others != 50 {
		t.Fatalf("after the report: state %s, %v requests from elsewhere, want full and 50", u.State, u.Others)
	}
	if _, at := b.place(prompt(1000, nil)); at != 0 {
		t.Errorf("placed at %d while the report holds, want 0", at)
	}
	b.now = b.now.Add(valid)
	if u := b.view(t, 1); u.State != "available" || u.Others != 0 {
		t.Errorf("when the report is stale: state %s, %v requests from elsewhere, want available and none", u.State, u.Others)
	}
	if _, at := b.place(prompt(1000, nil)); at != 1 {
		t.Errorf("placed at %d when the report is stale, want 1", at)
	}
}
