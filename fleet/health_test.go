// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
)

// wait lets time pass.
func (b *bed) wait(d time.Duration) { b.now = b.now.Add(d) }

// fails lets an upstream fail a number of dispatches at once.
func (b *bed) fails(at, times int) {
	for range times {
		p, _ := b.place(prompt(100, nil), at)
		p.End(CauseError, b.now)
	}
}

// choice is where a request would go; its client leaves at once.
func (b *bed) choice() int {
	p, at := b.place(prompt(100, nil))
	p.End(CauseCanceled, b.now)
	return at
}

// wantChoice fails the test unless a request would go to an upstream.
func (b *bed) wantChoice(t *testing.T, what string, want int) {
	t.Helper()
	if got := b.choice(); got != want {
		t.Errorf("%s: a request goes to upstream %v, want %v", what, got, want)
	}
}

// broken is a bed of two upstreams of which the first has just begun to cool
// down, and the second has so much to do that nothing but that keeps requests
// away from the first.
func broken(t *testing.T) *bed {
	t.Helper()
	b := newBed(2)
	b.loaded(1, 10_000_000)
	b.wantChoice(t, "before any failure", 0)
	b.fails(0, 2)
	b.wantChoice(t, "after two failures", 1)
	return b
}

func TestCoolDownGrows(t *testing.T) {
	b := broken(t)
	for _, seconds := range []int{1, 2, 4, 8, 15, 15, 15} {
		b.wait(time.Duration(seconds)*time.Second - 1)
		b.wantChoice(t, "just before the pause is over", 1)
		b.wait(1)
		b.wantChoice(t, "after the pause", 0)
		b.fails(0, 1)
		b.wantChoice(t, "after another failure", 1)
	}
	b.wait(mostPause)
	b.serve(prompt(100, nil), 0)
	b.fails(0, 2)
	b.wait(leastPause)
	b.wantChoice(t, "after the least pause, as it had succeeded before", 0)
}

func TestOnePoisonedPromptIsNoReason(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	b.fails(0, 1)
	b.wantChoice(t, "one failure of a new upstream", 0)
	for range 10 {
		b.serve(prompt(100, nil), 0)
	}
	b.fails(0, 3)
	b.wantChoice(t, "a client that tries a poisoned prompt three times", 0)
}

// A share of the latest outcomes tells, not of those of the last seconds: an
// upstream that has served a hundred requests in them would have to fail as
// many before anyone noticed, and one that serves few would never be found.
func TestFailuresAreFoundAtAnyRate(t *testing.T) {
	for _, every := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 16 * time.Second} {
		b := newBed(2)
		b.loaded(1, 10_000_000)
		for range 500 {
			b.serve(prompt(100, nil), 0)
			b.wait(every)
		}
		failures := 0
		for b.view(t, 0).State == "available" && failures < 20 {
			b.wait(every)
			b.fails(0, 1)
			failures++
		}
		if failures < 2 || failures > 6 {
			t.Errorf("at one request in %v an upstream that fails is found after %v failures, want 2 to 6", every, failures)
		}
	}
}

func TestRareFailuresAreNoReason(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	for range 100 {
		b.fails(0, 1)
		for range 3 {
			b.serve(prompt(100, nil), 0)
		}
		b.wantChoice(t, "one failure in four", 0)
		b.wait(time.Second)
	}
}

func TestWhatFailsEverywhereCoolsNobody(t *testing.T) {
	b := newBed(4)
	for range 50 {
		for at := range b.usable {
			b.fails(at, 1)
			b.wait(100 * time.Millisecond)
		}
	}
	for at := range b.usable {
		if got := b.view(t, at).State; got != "available" {
			t.Errorf("upstream %v is %s, want available", at, got)
		}
	}
}

// A trial that fails while everything fails says nothing of its upstream.
func TestTrialWhileEverythingFails(t *testing.T) {
	b := broken(t)
	b.fails(1, 20)
	b.wait(leastPause)
	b.fails(0, 1)
	b.wantChoice(t, "after a failure as everywhere", 0)
}

func TestMostCoolingIsIgnored(t *testing.T) {
	b := newBed(5)
	for range 10 {
		b.serve(prompt(100, nil), 3)
		b.serve(prompt(100, nil), 4)
	}
	cool := func(at int) {
		t.Helper()
		b.fails(at, 2)
		if got := b.view(t, at).State; got != "cooling_down" {
			t.Fatalf("upstream %v is %s, want cooling_down", at, got)
		}
	}
	used := func() (cooling int) {
		for range 100 {
			if p, at := b.place(prompt(100, nil)); p.Upstream() != "" && at < 3 {
				cooling++
			}
		}
		return cooling
	}
	cool(0)
	cool(1)
	if got := used(); got > 34 {
		t.Errorf("two of five cool down: they and the third get %v of 100 requests, want a third at most", got)
	}
	cool(2)
	if got := used(); got < 50 {
		t.Errorf("three of five cool down: they get %v of 100 requests, want more than half", got)
	}
}

// Upstreams that cannot serve the request at all do not outvote those that
// could.
func TestMostOfTheAbleCooling(t *testing.T) {
	b := broken(t)
	names := b.pool.Names()
	b.pool = NewPool([]string{names[0], "drained-0:8000", "drained-1:8000"})
	b.usable = []int{0, 1, 2}
	for _, name := range b.pool.Names()[1:] {
		b.place(prompt(100, nil))
		b.Drain(name, true)
	}
	b.wantChoice(t, "the only one that is not drained cools down", 0)
}

func TestTrialWaitsForAProbe(t *testing.T) {
	b := broken(t)
	name := b.pool.Names()[0]
	b.Probed(name, false, b.now)
	b.wait(leastPause)
	b.wantChoice(t, "no answer since", 1)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "an answer", 0)

	b.fails(0, 1)
	b.Probed(name, true, b.now.Add(-time.Millisecond))
	b.wait(2 * time.Second)
	b.wantChoice(t, "an answer from before the failure", 1)
	b.Probed(name, true, b.now)
	b.Probed(name, false, b.now)
	b.wantChoice(t, "an answer, and then none", 1)
	for range 16 {
		b.Probed(name, false, b.now)
		b.wait(time.Second)
	}
	b.wantChoice(t, "what the scraper asks never answers", 0)

	b.fails(0, 1)
	b.wait(4 * time.Second)
	b.Probed(name, false, b.now.Add(-probedFor))
	b.wantChoice(t, "the scraper is gone", 0)
}

// Where nobody asks upstreams that are well, the first answer after a failure is
// waited for all the same.
func TestTrialWaitsForAWatch(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	name := b.pool.Names()[0]
	asks := func(what string, want bool) {
		t.Helper()
		if got := b.Watch(name, b.now); got != want {
			t.Errorf("%s: asks %v, want %v", what, got, want)
		}
	}
	b.wantChoice(t, "before any failure", 0)
	asks("before any failure", false)
	b.fails(0, 2)
	b.wait(leastPause)
	b.wantChoice(t, "not asked yet", 1)
	asks("after the pause", true)
	b.Probed(name, false, b.now)
	b.wantChoice(t, "no answer", 1)
	asks("after no answer", true)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "an answer", 0)
	asks("after an answer", false)

	b.fails(0, 1)
	asks("in the pause", true)
	b.wait(time.Second)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "an answer in the pause", 1)
	b.wait(time.Second)
	b.wantChoice(t, "after the pause", 0)
	b.serve(prompt(100, nil), 0)
	asks("after a success", false)

	b.fails(0, 3)
	b.Probed(name, false, b.now)
	b.wait(leastPause)
	b.Probed(name, true, b.now)
	b.serve(prompt(100, nil), 0)
	b.Probed(name, false, b.now)
	asks("when it is well again", false)
	b.fails(0, 3)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "what was lost before the failure ends no pause", 1)

	for range 16 {
		asks("while nothing answers", true)
		b.Probed(name, false, b.now)
		b.wait(time.Second)
	}
	b.wantChoice(t, "what is asked never answers", 0)
	asks("when it is tried all the same", false)
	if b.Watch("unknown:8000", b.now) {
		t.Error("an upstream that the fleet does not know is asked")
	}
}

// An engine that was restarted answers again, and need not wait for the rest of
// the pause that it has earned while it was down.
func TestAnswerAfterNoneEndsThePause(t *testing.T) {
	b := broken(t)
	name := b.pool.Names()[0]
	for range 10 {
		b.wait(mostPause)
		b.fails(0, 1)
	}
	b.Probed(name, true, b.now)
	b.wait(2 * time.Second)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "the API answers, and always did", 1)
	b.Probed(name, false, b.now)
	b.wantChoice(t, "the API is gone", 1)
	b.Probed(name, true, b.now)
	b.wantChoice(t, "the API is back", 0)
}

func TestOneTrialAtATime(t *testing.T) {
	b := broken(t)
	old, _ := b.place(prompt(100, nil), 0)
	b.wait(leastPause)
	old.End(CauseCanceled, b.now)

	trial, at := b.place(prompt(100, nil))
	if at != 0 {
		t.Fatalf("after the pause a request goes to upstream %v, want 0", at)
	}
	for range 10 {
		b.wantChoice(t, "during the trial", 1)
	}
	trial.End(CauseCanceled, b.now)
	b.wantChoice(t, "after the trial's client has left", 0)

	trial, _ = b.place(prompt(100, nil))
	trial.Fail(CauseError, BlameNone, b.now)
	trial.End(CauseError, b.now)
	b.wantChoice(t, "after a trial that was refused for its own fault", 0)

	trial, _ = b.place(prompt(100, nil))
	trial.FirstOutput(b.now)
	for range 3 {
		if _, at := b.place(prompt(100, nil)); at != 0 {
			t.Errorf("after the first output of the trial a request goes to upstream %v, want 0", at)
		}
	}
}

// An unstreamed trial shows nothing before its end, which may be minutes away.
func TestLongTrialMakesRoomForAnother(t *testing.T) {
	b := broken(t)
	b.wait(leastPause)
	b.place(Request{Tokens: 100, Prefills: true, Silent: true})
	b.wait(patience - 1)
	b.wantChoice(t, "while the trial may take", 1)
	b.wait(1)
	b.place(prompt(100, nil))
	b.wantChoice(t, "during the second trial", 1)
}

// What was sent before the upstream failed says nothing of what became of it.
func TestOlderRequestsAreNoTrial(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	good, _ := b.place(prompt(100, nil), 0)
	bad, _ := b.place(prompt(100, nil), 0)
	b.wait(1)
	b.fails(0, 2)
	good.FirstOutput(b.now)
	b.wantChoice(t, "after the first output of an older request", 1)
	b.wait(leastPause)
	bad.End(CauseError, b.now)
	b.wantChoice(t, "after the failure of an older request", 0)
}

// A client that asks for something which an engine does not have, and one that
// asks often for something it has, say nothing of how prompts fare.
func TestOnlyPromptsTell(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	for range 10 {
		p, _ := b.place(Request{}, 0)
		p.End(CauseError, b.now)
	}
	if got := b.view(t, 0).State; got != "available" {
		t.Errorf("after failures without a prompt the upstream is %s, want available", got)
	}
	for range 50 {
		p, _ := b.place(Request{}, 0)
		p.End(CauseEnd, b.now)
	}
	b.fails(0, 2)
	if got := b.view(t, 0).State; got != "cooling_down" {
		t.Errorf("after two failures among many answers without a prompt it is %s, want cooling_down", got)
	}
	p, _ := b.place(Request{}, 0)
	p.End(CauseEnd, b.now)
	if got := b.view(t, 0).State; got != "cooling_down" {
		t.Errorf("after another answer without a prompt it is %s, want cooling_down", got)
	}
}

// Whatever was held against an upstream, an hour later it is chosen again.
func TestNothingIsShutOutForGood(t *testing.T) {
	for _, test := range []struct {
		name string
		mark func(b *bed)
	}{
		{"failures", func(b *bed) { b.fails(0, 50) }},
		{"failures over time", func(b *bed) {
			for range 50 {
				b.fails(0, 1)
				b.wait(7 * time.Second)
			}
		}},
		{"failures and no answer to a probe", func(b *bed) { b.fails(0, 50); b.Probed(b.pool.Names()[0], false, b.now) }},
		{"a trial without an end", func(b *bed) {
			b.fails(0, 50)
			b.wait(mostPause)
			b.place(prompt(100, nil), 0)
		}},
		{"no room", func(b *bed) {
			p, _ := b.place(prompt(100, nil), 0)
			p.Fail(CauseError, BlameFull, b.now)
		}},
		{"a stream that nothing comes of", func(b *bed) { b.place(streamed(100), 0) }},
		{"streams that nothing comes of, over time", func(b *bed) {
			for range 50 {
				b.place(streamed(100), 0)
				b.wait(5 * time.Second)
				b.choice()
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			b.loaded(1, 10_000_000)
			test.mark(b)
			b.options.PrefillTTL = 2 * time.Hour
			b.wait(time.Hour)
			b.wantChoice(t, "an hour later", 0)
		})
	}
}
