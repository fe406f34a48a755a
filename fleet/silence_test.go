// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
)

// streamed is a request whose response shows its progress.
func streamed(tokens int) Request { return Request{Tokens: tokens, Prefills: true, Watched: true} }

// wantState fails the test unless the first upstream is in a state.
func (b *bed) wantState(t *testing.T, what, want string) {
	t.Helper()
	if got := b.view(t, 0).State; got != want {
		t.Errorf("%s: the upstream is %s, want %s", what, got, want)
	}
}

func TestSilentUpstreamIsSuspect(t *testing.T) {
	b := newBed(2)
	b.serve(turn(7, 1000), 0)
	b.loaded(1, 10_000_000)
	b.place(streamed(1000), 0)
	b.wait(patience - 1)
	b.wantChoice(t, "within the patience", 0)
	b.wait(1)
	b.wantChoice(t, "after it", 1)
	b.wantState(t, "after it", "suspect")
	p, at := b.place(turn(7, 1200))
	if at != 1 || p.Reason() != ReasonMovedUnavailable {
		t.Errorf("a session of the silent upstream goes to %v for %q, want 1 for moved_unavailable", at, p.Reason())
	}
}

// A prompt of 20,000 tokens may take 10 seconds where no rate is known, and five
// times that before anyone wonders. What comes behind it takes no more.
func TestSilenceOfAPrefill(t *testing.T) {
	b := newBed(2)
	b.place(streamed(20_000), 0)
	for range 10 {
		b.wait(5 * time.Second)
		if b.now.Sub(start) < 50*time.Second {
			b.wantState(t, "during the prefill", "available")
			b.place(streamed(50_000), 0)
		}
	}
	b.wantState(t, "after five times the prefill", "suspect")
}

func TestSilenceIsBroken(t *testing.T) {
	b := newBed(2)
	b.List(b.pool.Names())
	quiet, _ := b.place(streamed(100), 0)
	talks, _ := b.place(streamed(100), 0)
	talks.FirstOutput(b.now)
	for range 360 {
		b.wait(10 * time.Second)
		talks.Progress(b.now)
		b.place(streamed(0), 0)
		b.wantState(t, "an hour of decoding", "available")
	}
	talks.End(CauseEnd, b.now)
	b.wait(patience)
	b.wantState(t, "after it", "suspect")
	b.wantChoice(t, "after it", 1)
	quiet.FirstOutput(b.now)
	b.wantState(t, "once something has come", "cooling_down")
}

// Looking at a fleet changes nothing in it: however often it is looked at, an
// upstream that was silent is not held to have failed unless a placement met it.
func TestViewDoubtsNobody(t *testing.T) {
	b := newBed(2)
	b.List(b.pool.Names())
	quiet, _ := b.place(streamed(100), 0)
	b.wait(patience)
	for range 3 {
		b.wantState(t, "in silence", "suspect")
	}
	quiet.FirstOutput(b.now)
	b.wantState(t, "once something has come", "available")
}

func TestWhatIsNoSilence(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(b *bed)
	}{
		{"nothing", func(*bed) {}},
		{"an unstreamed response", func(b *bed) { b.place(Request{Tokens: 100, Prefills: true, Watched: true, Silent: true}, 0) }},
		{"a response that nobody watches", func(b *bed) { b.place(prompt(100, nil), 0) }},
		{"a request without a prompt", func(b *bed) { b.place(Request{Watched: true}, 0) }},
		{"a stream that has ended", func(b *bed) {
			p, _ := b.place(streamed(100), 0)
			p.FirstOutput(b.now)
			p.End(CauseEnd, b.now)
			p.End(CauseEnd, b.now)
		}},
		{"a stream whose client does not read", func(b *bed) {
			p, _ := b.place(streamed(100), 0)
			p.FirstOutput(b.now)
			p.Blocked(true)
			p.Blocked(false)
			p.Blocked(true)
		}},
		{"a quiet stream beside an unstreamed response that ends", func(b *bed) {
			b.place(streamed(100), 0)
			p, _ := b.place(Request{Tokens: 100, Prefills: true, Watched: true, Silent: true}, 0)
			b.wait(10 * time.Second)
			p.Progress(b.now)
			b.now = start
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(2)
			b.place(Request{}, 0)
			test.do(b)
			b.wait(patience)
			b.wantState(t, "after the patience", "available")
		})
	}
}

// The list of models comes from the process that answers HTTP, which goes on
// while its engine hangs.
func TestOtherAnswersDoNotBreakSilence(t *testing.T) {
	b := newBed(2)
	b.place(streamed(100), 0)
	b.wait(patience)
	p, _ := b.place(Request{Watched: true}, 0)
	p.Progress(b.now)
	p.End(CauseEnd, b.now)
	b.wantState(t, "after an answer without a prompt", "suspect")
}

// Where nobody answers there is nothing to compare with.
func TestSilenceOfAll(t *testing.T) {
	for _, upstreams := range []int{1, 2, 3} {
		b := newBed(upstreams)
		for at := range b.usable {
			b.place(streamed(100), at)
		}
		b.wait(time.Minute)
		b.choice()
		b.wantState(t, "while all are silent", "available")
	}
}

// An engine that hangs for good is tried with one request at a time.
func TestTrialAfterSilence(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	streams := make([]*Placement, 3)
	for i := range streams {
		streams[i], _ = b.place(streamed(100), 0)
	}
	for range 9 {
		b.wait(5 * time.Second)
		if at := b.choice(); at == 0 && b.now.Sub(start) >= patience {
			t.Errorf("after %v a request goes to the upstream that hangs", b.now.Sub(start))
		}
	}
	for _, p := range streams {
		p.End(CauseCanceled, b.now)
	}
	trial, at := b.place(streamed(100))
	if at != 0 {
		t.Fatalf("after the streams are gone a request goes to upstream %v, want 0", at)
	}
	for range 10 {
		b.wantChoice(t, "during the trial", 1)
		b.wait(5 * time.Second)
	}
	trial.End(CauseCanceled, b.now)
	b.wait(mostPause)
	trial, _ = b.place(streamed(100))
	trial.FirstOutput(b.now)
	b.wantChoice(t, "after a trial that has shown output", 0)
}

// A connection that was cut without a word holds a stream open for ever. The
// upstream behind it is tried now and then, and used once that went well.
func TestTrialDespiteDeadStreams(t *testing.T) {
	b := newBed(2)
	b.loaded(1, 10_000_000)
	b.place(streamed(100), 0)
	var trials []*Placement
	for range 600 {
		b.wait(time.Second)
		if p, at := b.place(streamed(100)); at == 0 && b.now.Sub(start) >= patience {
			trials = append(trials, p)
		} else {
			p.End(CauseCanceled, b.now)
		}
	}
	if len(trials) < 3 || len(trials) > 5 {
		t.Fatalf("%v requests in ten minutes went to the upstream with a dead stream, want 3 to 5", len(trials))
	}
	trials[len(trials)-1].FirstOutput(b.now)
	b.wantChoice(t, "after a trial that has shown output", 0)
}
