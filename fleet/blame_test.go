// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// What a request without a prompt is refused says nothing of the engine: one page
// that answers 503 must not take an upstream away from all prompts.
func TestRefusalWithoutPrompt(t *testing.T) {
	b := newBed(2)
	p, at := b.place(Request{})
	p.Refused(time.Minute, b.now)
	p.Fail(CauseError, BlameFull, b.now)
	p.End(CauseError, b.now)
	if got := b.view(t, at).State; got != "available" {
		t.Errorf("the upstream is %s after a 503 without a prompt, want available", got)
	}
}

// blamed lets upstream 0 fail requests for the model m at once.
func (b *bed) blamed(blame Blame, times int) {
	for range times {
		p, _ := b.place(Request{Tokens: 100, Prefills: true, Model: "m"}, 0)
		p.Fail(CauseError, blame, b.now)
		p.End(CauseError, b.now)
	}
}

func TestBlameByKind(t *testing.T) {
	served := func(model string, at int) func(b *bed) {
		return func(b *bed) { b.serve(Request{Tokens: 100, Prefills: true, Model: model}, at) }
	}
	for _, test := range []struct {
		name   string
		before func(b *bed)
		blame  Blame
		state  string
		load   bool
	}{
		{"nobody's fault", served("m", 1), BlameNone, "available", false},
		{"a failure", func(*bed) {}, BlameFailure, "cooling_down", true},
		{"denied what nobody has served", func(*bed) {}, BlameDenied, "available", false},
		{"denied what another one serves", served("m", 1), BlameDenied, "cooling_down", true},
		{"denied what it has served last", served("m", 0), BlameDenied, "available", false},
		{"denied another model", served("k", 1), BlameDenied, "available", false},
		{"denied what was served a minute ago", func(b *bed) { served("m", 1)(b); b.wait(servedFor) }, BlameDenied, "cooling_down", true},
		{"denied what was served longer ago", func(b *bed) { served("m", 1)(b); b.wait(servedFor + 1) }, BlameDenied, "available", false},
		{"full", func(*bed) {}, BlameFull, "full", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			test.before(b)
			b.blamed(test.blame, 5)
			b.wantState(t, "after five of them", test.state)
			if got := b.view(t, 0).FailedLoad; (got > 0) != test.load {
				t.Errorf("FailedLoad = %v, want some: %v", got, test.load)
			}
		})
	}
}

// An upstream without room says so, for as long as that may hold, and is not
// left alone for longer the more often it does.
func TestFullByItsOwnWord(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	for range 20 {
		b.wantChoice(t, "before", 0)
		b.blamed(BlameFull, 3)
		b.wait(refusedFor - 1)
		b.wantChoice(t, "just before two seconds have passed", 1)
		b.wait(1)
	}
	b.blamed(BlameFull, 1)
	b.wantChoice(t, "before the next report", 1)
	b.Observe(b.pool.Names()[0], engines.Report{}, b.now, time.Minute)
	b.wantChoice(t, "after the next report", 0)
}

// One that says when to come back is full until then, within reason, whatever its
// reports say meanwhile; until it serves what was sent there all the same.
func TestFullForAsLongAsItSays(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	refused := func(told time.Duration) {
		p, _ := b.place(prompt(100, nil), 0)
		p.Fail(CauseError, BlameFull, b.now)
		p.Refused(told, b.now)
		p.End(CauseError, b.now)
	}
	reported := func() { b.Observe(b.pool.Names()[0], engines.Report{}, b.now, time.Minute) }
	for _, test := range []struct{ told, full time.Duration }{
		{30 * time.Second, 30 * time.Second},
		{time.Hour, time.Minute},
		{time.Second, 2 * time.Second},
		{20 * time.Second, 20 * time.Second},
	} {
		refused(test.told)
		b.wait(test.full - 1)
		reported()
		b.wantChoice(t, "just before that is over", 1)
		b.wait(1)
		b.wantChoice(t, "after that", 0)
	}
	refused(0)
	b.wantChoice(t, "it does not say when", 1)
	reported()
	b.wantChoice(t, "it does not say when, and a report has come", 0)

	early, _ := b.place(prompt(100, nil), 0)
	b.wait(1)
	refused(time.Minute)
	b.wait(1)
	early.FirstOutput(b.now)
	b.wantChoice(t, "it serves what was there before", 1)
	b.serve(prompt(100, nil), 0)
	b.wantChoice(t, "it serves what has come since", 0)
}

func TestSessionStaysAtAFullHome(t *testing.T) {
	b := newBed(2)
	b.serve(turn(7, 1000), 0)
	b.blamed(BlameFull, 1)
	if p, at := b.place(turn(7, 1200)); at != 0 || p.Reason() != ReasonPinned {
		t.Errorf("turn of a session at a full home goes to %v for %q, want 0 for pinned", at, p.Reason())
	}
}

// One of four upstreams answers an error in a millisecond, and no client tries
// again: nearly all of them must not see it.
func TestFewClientsSeeABrokenUpstream(t *testing.T) {
	const requests, upstreams = 1440, 4
	for _, test := range []struct {
		name   string
		blame  Blame
		breaks int // after how many requests
		probed bool
		most   int
	}{
		{"status 500 from the start", BlameFailure, 0, true, 16},
		{"status 500 from a third on", BlameFailure, 480, true, 16},
		{"status 404 from a third on", BlameDenied, 480, true, 16},
		// without that one has to try every 15 seconds
		{"status 500 from the start, never probed", BlameFailure, 0, false, requests * 2 / 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(upstreams)
			type event struct {
				at time.Time
				do func(p *Placement)
				p  *Placement
			}
			var events []event
			seen := 0
			for i := range requests {
				b.now = start.Add(time.Duration(i) * 250 * time.Millisecond)
				if test.probed && i%4 == 0 {
					b.Probed(b.pool.Names()[0], true, b.now)
				}
				for len(events) > 0 && !events[0].at.After(b.now) {
					events[0].do(events[0].p)
					events = events[1:]
				}
				p, at := b.place(Request{Tokens: 6000, Prefills: true, Watched: true, Model: "m"})
				if at == 0 && i >= test.breaks {
					p.Fail(CauseError, test.blame, b.now)
					p.End(CauseError, b.now)
					seen++
					continue
				}
				// the first output half a second later, the end after ten
				events = append(events, event{b.now.Add(500 * time.Millisecond), func(p *Placement) {
					p.FirstOutput(b.now)
					p.End(CauseEnd, b.now)
				}, p})
			}
			t.Logf("%v of %v requests saw the error", seen, requests)
			if seen > test.most {
				t.Errorf("%v of %v requests saw the error, want %v at most", seen, requests, test.most)
			}
		})
	}
}

// A breaker that stays open for a minute outlasts the half minute for which clients
// try again.
//
// An upstream that works again is used again within ten seconds: at once where
// a scraper finds that it answers again, else after a pause that fits how long it
// was down.
func TestCaseC43RecoveredUpstreamIsUsedAgain(t *testing.T) {
	for _, test := range []struct {
		name   string
		down   time.Duration
		probed bool
		within time.Duration

		// answers says that it answers probes while it fails
		answers bool
	}{
		{"down for 5 seconds", 5 * time.Second, false, 10 * time.Second, false},
		{"down for 5 seconds, probed", 5 * time.Second, true, 2 * time.Second, false},
		{"down for 10 minutes", 10 * time.Minute, false, 15 * time.Second, false},
		{"down for 10 minutes, probed", 10 * time.Minute, true, 2 * time.Second, false},
		{"broken for 5 seconds", 5 * time.Second, true, 5 * time.Second, true},
		{"broken for 20 seconds", 20 * time.Second, true, 20 * time.Second, true},
		{"broken for 10 minutes", 10 * time.Minute, true, time.Minute + time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(4)
			up := start.Add(test.down)
			var live []*Placement
			for used := 0; used < 3; {
				b.wait(100 * time.Millisecond)
				if len(live) > 20 {
					live[0].End(CauseEnd, b.now)
					live = live[1:]
				}
				works := !b.now.Before(up)
				if test.probed && b.now.Sub(start)%time.Second == 0 {
					b.Probed(b.pool.Names()[0], works || test.answers, b.now)
				}
				p, at := b.place(prompt(1000, nil))
				if at == 0 && !works {
					p.End(CauseError, b.now)
					continue
				}
				p.FirstOutput(b.now)
				live = append(live, p)
				if at == 0 {
					used++
				} else if b.now.Sub(up) > time.Minute {
					t.Fatal("the upstream is not used a minute after it works again")
				}
			}
			if took := b.now.Sub(up); took > test.within {
				t.Errorf("used again after %v, want within %v", took, test.within)
			}
		})
	}
}
