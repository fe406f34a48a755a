// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/sessions"
)

// learning is a request for a model whose response tells how many tokens it had.
func (b *bed) learning(model string) {
	p, _ := b.place(Request{Tokens: 100, TextBytes: 400, Prefills: true, Learns: true, Model: model})
	p.FirstOutput(b.now)
	p.Usage(engines.Usage{PromptTokens: 100}, b.now)
	p.End(CauseEnd, b.now)
}

// Whatever names a client makes up, and engines answer for, the tables of models
// stay within their bound, and those of names that nobody uses make room.
func TestManyModelsAreBounded(t *testing.T) {
	b := newBed(2)
	for i := range 20 * maxModels {
		b.learning(fmt.Sprint("model ", i))
	}
	if len(b.services) > maxModels || len(b.estimates) > maxModels {
		t.Errorf("%d models served and %d learned of, want %d at most", len(b.services), len(b.estimates), maxModels)
	}
	b.wait(servedFor + 1)
	b.serve(Request{Tokens: 100, Prefills: true, Model: "m"}, 1)
	b.blamed(BlameDenied, 5)
	b.wantState(t, "denied a model that was served after too many others", "cooling_down")
}

// However many sessions come, and in whatever way they end, the least recently
// used make room.
func TestManySessionsAreBounded(t *testing.T) {
	b := newBed(2)
	b.options.Sessions.Max = 500
	b.place(turn(1, 100), 0) // which goes on all the while
	for i := range 20 * b.options.Sessions.Max {
		p, at := b.place(turn(sessions.Key(i+2), 100))
		if at < 0 {
			t.Fatalf("session %d is not placed", i)
		}
		p.End([]Cause{CauseEnd, CauseError, CauseCanceled, CauseRetried}[i%4], b.now)
		b.wait(time.Millisecond)
		if got := b.sessions.Len(); got > b.options.Sessions.Max {
			t.Fatalf("%d sessions, want %d at most", got, b.options.Sessions.Max)
		}
	}
	if p, at := b.place(turn(1, 100)); at != 0 || p.Reason() != ReasonPinned {
		t.Errorf("the session with a request in flight goes to %d, %s, want 0, pinned", at, p.Reason())
	}
}

// Upstreams that come from DNS under ever new names are forgotten when they have
// departed, with all that was known of them.
func TestManyUpstreamsAreBounded(t *testing.T) {
	b := newBed(1)
	const perMinute = 50
	most := 0
	for minute := range 60 {
		for i := range perMinute {
			b.pool = NewPool([]string{fmt.Sprintf("10.0.%d.%d:8000", minute, i), "10.1.0.0:8000"})
			b.usable = []int{0, 1}
			b.serve(Request{Session: sessions.Key(minute*perMinute + i + 1), Tokens: 1000, Prefills: true, Blocks: text(1, 1000, 0, 0)}, 0)
			b.wait(time.Minute / perMinute)
		}
		most = max(most, len(b.upstreams))
	}
	// the sweep comes once a minute
	if limit := perMinute*int((departed+sweepEvery)/time.Minute+1) + 1; most > limit {
		t.Errorf("%d upstreams are known at once, want %d at most", most, limit)
	}
	b.wait(departed + sweepEvery)
	b.serve(prompt(100, nil), 1)
	if got := len(b.upstreams); got > 2 {
		t.Errorf("%d upstreams are known when they have departed, want those of the last request", got)
	}
}

// The trail of a fleet of many upstreams remembers fewer decisions, and no more of
// a name than it has room for.
func TestTrailIsBounded(t *testing.T) {
	for _, upstreams := range []int{1, 64, 500, 5000} {
		b := newBed(upstreams)
		req := Request{Tokens: 100, Prefills: true, Model: strings.Repeat("m", 10_000)}
		b.serve(req)
		for range len(b.trail.steps) {
			b.serve(req)
		}
		rooms, names := 0, 0
		for i := range b.trail.steps {
			rooms += cap(b.trail.steps[i].Appraisals)
			names += cap(b.trail.steps[i].model)
		}
		if limit := max(trailAppraisals, upstreams); rooms > limit || names > trailLength*longestModel {
			t.Errorf("%d upstreams: room for %d appraisals and %d bytes of names, want %d and %d at most",
				upstreams, rooms, names, limit, trailLength*longestModel)
		}
	}
}

// BenchmarkMemory fills each table of a fleet to its bound, and reports what it
// takes, and what each entry does.
func BenchmarkMemory(b *testing.B) {
	for _, table := range []struct {
		name string
		n    int
		fill func(b *bed, n int)
	}{
		{"sessions", 100_000, func(b *bed, n int) {
			b.options.PrefixIndex = false
			for i := range n {
				b.serve(Request{Session: sessions.Key(i + 1), Tokens: 100, Prefills: true, Blocks: text(uint64(i), 512, 0, 0)})
			}
		}},
		{"responses", maxResponses, func(b *bed, n int) {
			p, _ := b.place(prompt(100, nil), 0)
			for i := range n {
				p.Keeps(ResponseKey(mix(uint64(i))))
			}
			p.End(CauseEnd, b.now)
		}},
		{"models", maxModels, func(b *bed, n int) {
			for i := range n {
				// as long as a name may be
				b.learning(fmt.Sprintf("%0512d", i))
			}
		}},
		{"upstreams", 1000, func(b *bed, n int) {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)
			}
			b.List(names)
		}},
		{"decisions", trailLength, func(b *bed, n int) {
			*b = *newBed(64)
			for range n {
				b.serve(Request{Tokens: 100, Prefills: true, Model: strings.Repeat("m", longestModel)})
			}
		}},
		{"requests", 2000, func(b *bed, n int) {
			for i := range n {
				b.place(Request{Tokens: 100, Prefills: true, Session: sessions.Key(i + 1), Blocks: text(1, 25_600, 0, 0)})
			}
		}},
	} {
		b.Run(table.name, func(b *testing.B) {
			var used uint64
			for b.Loop() {
				bed := newBed(8)
				bed.serve(prompt(100, nil))
				before := heap()
				table.fill(bed, table.n)
				used = heap() - before
				runtime.KeepAlive(bed)
			}
			b.ReportMetric(float64(used)/float64(table.n), "bytes/entry")
			b.ReportMetric(float64(used)/(1<<20), "MiB")
		})
	}
}

// heap is what the heap holds after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
