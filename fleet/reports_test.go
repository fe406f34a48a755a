// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// wantUncached fails the test unless the request would have to be prefilled so
// far on that upstream.
func (b *bed) wantUncached(t *testing.T, what string, at int, req Request, want int) {
	t.Helper()
	p, _ := b.place(req, at)
	if got := p.UncachedTokens(); got != want {
		t.Errorf("%s: UncachedTokens() on %v = %v, want %v", what, at, got, want)
	}
	p.End(CauseCanceled, b.now)
}

func TestOthersDrawRequestsAway(t *testing.T) {
	b := known(2)
	b.loaded(0, 50_000)
	b.report(1, engines.Report{Running: engines.Known(2), Waiting: engines.Known(20)})
	if _, at := b.place(prompt(10, nil)); at != 0 {
		t.Errorf("Place() with 22 requests from elsewhere on 1 = %v, want 0", at)
	}
	b.now = b.now.Add(valid)
	if _, at := b.place(prompt(10, nil)); at != 1 {
		t.Errorf("Place() when nobody says so any more = %v, want 1", at)
	}
}

// Our own burst is in the gauges too, for a report longer than it runs. It must
// not count twice, nor make the upstream look as if others used it.
func TestOwnBurstIsNobodyElse(t *testing.T) {
	b := known(1)
	var burst []*Placement
	for range 40 {
		burst = append(burst, b.loaded(0, 10))
	}
	report := func(running float64) float64 {
		b.now = b.now.Add(time.Second)
		b.report(0, engines.Report{Running: engines.Known(running), Generated: engines.Known(running)})
		return b.view(t, 0).Others
	}
	if got := report(40); got != 0 {
		t.Errorf("Others of 40 that are ours = %v, want 0", got)
	}
	for _, p := range burst {
		p.End(CauseEnd, b.now)
	}
	if got := report(40); got != 0 {
		t.Errorf("Others just after ours ended = %v, want 0", got)
	}
	if got := report(40); got != 40 {
		t.Errorf("Others of 40 a report later = %v, want 40", got)
	}
}

// A report that no engine can mean must not break what compares the costs.
func TestAbsurdReports(t *testing.T) {
	huge := engines.Known(math.MaxFloat64)
	absurd := engines.Report{
		Running: huge, Waiting: huge, KVUsage: huge, KVTokens: huge,
		Computed: huge, Generated: huge, PrefixQueries: huge, PrefixHits: huge, Started: huge,
	}
	b := known(2)
	blocks := text(1, 25_600, 0, 0)
	for _, r := range []engines.Report{absurd, {}, absurd, {PrefixHits: engines.Known(0)}, absurd} {
		for at := range b.usable {
			b.report(at, r)
		}
		p, at := b.place(Request{Session: 7, Tokens: 25_600, Blocks: blocks, Prefills: true})
		if at < 0 || p.UncachedTokens() < 0 || p.UncachedTokens() > 25_600 {
			t.Errorf("Place() after an absurd report = %v with %v uncached tokens", at, p.UncachedTokens())
		}
		p.End(CauseEnd, b.now)
	}
	// both are as loaded, so the session stays where it is
	home := b.serve(turn(8, 1000))
	for at := range b.usable {
		b.report(at, absurd)
	}
	if p, at := b.place(turn(8, 1200)); at != home || p.Reason() != ReasonPinned {
		t.Errorf("Place() of a session = %v for %q, want its home %v", at, p.Reason(), home)
	}
	blocksHeld := 0
	for at := range b.usable {
		u := b.view(t, at)
		blocksHeld += u.PrefixBlocks
		if math.IsNaN(u.Others) || math.IsInf(u.Others, 0) || !(u.Belief >= 0 && u.Belief <= 1) || u.PrefixCapacity < 0 {
			t.Errorf("View() after absurd reports = %+v", u)
		}
	}
	if blocksHeld == 0 {
		t.Errorf("the indexes hold nothing after an absurd capacity")
	}
}

func TestObserveStranger(t *testing.T) {
	b := newBed(1)
	b.Observe("stranger:8000", engines.Report{Asleep: true}, b.now, valid)
	b.ObserveModels("stranger:8000", models("m"), b.now, valid)
	b.ScrapeFailed("stranger:8000")
	if v := b.View(b.now); len(v.Upstreams) != 0 {
		t.Errorf("View() = %+v, want nobody", v)
	}
}

// A restart empties what is believed of that upstream alone, and leaves its
// sessions at home: somewhere else they would be as cold.
func TestRestartEmptiesTheIndex(t *testing.T) {
	blocks := text(1, 25_600, 0, 0)
	req := prompt(25_600, blocks)
	started := func(at float64) engines.Report { return engines.Report{Started: engines.Known(at)} }
	tests := []struct {
		name          string
		first, second engines.Report
		emptied       bool
	}{
		{"nothing happened", started(1), started(1), false},
		{"started anew", started(1), started(2), true},
		{"counts anew", engines.Report{Generated: engines.Known(9)}, engines.Report{Generated: engines.Known(1)}, true},
		{"fell asleep", engines.Report{}, engines.Report{Asleep: true}, true},
		{"says nothing", started(1), engines.Report{}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := known(2)
			b.report(0, test.first)
			b.serve(req, 0)
			b.serve(req, 1)
			withSession := req
			withSession.Session = 7
			b.serve(withSession, 0)
			inFlight, _ := b.place(req, 0)
			b.report(0, test.second)
			want := 0
			if test.emptied {
				want = 25_600
			}
			b.wantUncached(t, "after it", 0, req, want)
			b.wantUncached(t, "elsewhere", 1, req, 0)
			if u := b.view(t, 0); u.Sessions != 1 || u.PrefixCapacity == 0 {
				t.Errorf("sessions, capacity after it = %v, %v, want 1 and some", u.Sessions, u.PrefixCapacity)
			}
			// what was recorded before is not taken back from what came after
			b.serve(req, 0)
			inFlight.End(CauseError, b.now)
			b.wantUncached(t, "served again", 0, req, 0)
			if !test.second.Asleep {
				if p, at := b.place(withSession); at != 0 || p.Reason() != ReasonPinned {
					t.Errorf("Place() of the session = %v for %q, want 0", at, p.Reason())
				}
			}
		})
	}
}

// The option is asked first, then the engine.
func TestCapacityFromReports(t *testing.T) {
	sized := func(tokens float64) engines.Report { return engines.Report{KVTokens: engines.Known(tokens)} }
	b := known(1)
	steps := []struct {
		name   string
		option int
		report *engines.Report
		want   int
	}{
		{"nobody says", 0, nil, DefaultKVTokens / BlockTokens},
		{"a report without it", 0, &engines.Report{}, DefaultKVTokens / BlockTokens},
		{"the engine says", 0, new(sized(600_064)), 2344},
		{"a report that leaves it out", 0, &engines.Report{}, 2344},
		{"the engine says nearly the same", 0, new(sized(620_000)), 2344},
		{"the engine says another", 0, new(sized(2_560_000)), 10_000},
		{"the option says", 256_000, nil, 1000},
		{"the option and a report", 256_000, new(sized(600_064)), 1000},
		{"the option is gone", 0, nil, 2344},
		{"an absurd size", 0, new(sized(math.MaxFloat64)), math.MaxInt32 / BlockTokens},
	}
	for _, s := range steps {
		b.options.KVTokens = s.option
		if s.report != nil {
			b.report(0, *s.report)
		}
		b.serve(prompt(2560, text(1, 2560, 0, 0)))
		if got := b.view(t, 0).PrefixCapacity; got != s.want {
			t.Errorf("%s: PrefixCapacity = %v, want %v", s.name, got, s.want)
		}
	}
}

// Half of what was believed to be cached was: as much is added to what has to
// be prefilled, in the reservation and in the counters.
func TestBeliefScalesUncached(t *testing.T) {
	const tokens = 500 * BlockTokens
	b := known(1)
	blocks := text(1, tokens, 0, 0)
	hits := 0.0
	report := func() {
		b.now = b.now.Add(time.Second)
		b.report(0, engines.Report{PrefixHits: engines.Known(hits)})
	}
	report()
	b.serve(prompt(tokens, blocks))
	report()
	b.wantUncached(t, "before anything is measured", 0, prompt(tokens, blocks), 0)
	b.serve(prompt(tokens, blocks))
	hits += tokens / 2
	report()
	if u := b.view(t, 0); u.Belief != 0.5 {
		t.Errorf("Belief = %v, want 0.5", u.Belief)
	}
	before := b.view(t, 0).Totals
	p, _ := b.place(prompt(tokens, blocks))
	if p.UncachedTokens() != tokens/2 || p.PromptTokens() != tokens || p.Reason() != ReasonPrefix {
		t.Errorf("uncached, prompt tokens = %v, %v for %q, want half of %v", p.UncachedTokens(), p.PromptTokens(), p.Reason(), tokens)
	}
	u := b.view(t, 0)
	if u.Prefill != tokens/2 || u.Totals.PrefillTokens-before.PrefillTokens != tokens/2 {
		t.Errorf("prefill, prefill tokens = %v, %v, want %v", u.Prefill, u.Totals.PrefillTokens-before.PrefillTokens, tokens/2)
	}
	// what is not believed of the index is still what it predicted: the share
	// must not shrink by itself
	p.FirstOutput(b.now)
	p.End(CauseEnd, b.now)
	hits += tokens / 2
	report()
	if u := b.view(t, 0); u.Belief != 0.5 {
		t.Errorf("Belief after another turn with half of the hits = %v, want 0.5", u.Belief)
	}
}

func TestViewOfReports(t *testing.T) {
	b := known(1)
	r := engines.Report{
		Running: engines.Known(5), Waiting: engines.Known(2), KVUsage: engines.Known(0.97),
		KVTokens: engines.Known(600_000), Generated: engines.Known(9), Models: []string{"m"},
	}
	b.loaded(0, 10)
	b.report(0, r)
	b.lists(0, "z", "a")
	b.ScrapeFailed(b.pool.Names()[0])
	got := b.view(t, 0)
	if got.State != "full" || got.Others != 6 || !got.Reported.Equal(b.now) || !reflect.DeepEqual(got.Report, r) ||
		!reflect.DeepEqual(got.Models, []string{"a", "z"}) || got.Totals.ScrapeErrors != 1 || got.Speed != 1 || got.PrefillRate != 0 {
		t.Errorf("View() = %+v, want what was reported", got)
	}
	b.drain(0, true)
	if got := b.view(t, 0).State; got != "drained" {
		t.Errorf("State of a drained upstream = %q, want drained", got)
	}
	b.drain(0, false)
	b.sleep(0)
	if got := b.view(t, 0).State; got != "asleep" {
		t.Errorf("State of one that sleeps = %q, want asleep", got)
	}
	reported := b.now
	b.now = b.now.Add(valid)
	if got := b.view(t, 0); got.State != "available" || got.Others != 0 || got.Models != nil || !got.Reported.Equal(reported) {
		t.Errorf("View() of what is too old = %+v, want it available and the report with its time", got)
	}
}
