// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// lab drives an engine in virtual time.
type lab struct {
	*Engine
	t   *testing.T
	now time.Duration
}

func newLab(t *testing.T, cfg Config) *lab {
	t.Helper()
	return &lab{Engine: New(cfg), t: t}
}

func (l *lab) submit(list ...*Request) {
	l.t.Helper()
	for _, r := range list {
		if err := l.Submit(l.now, r); err != nil {
			l.t.Fatalf("Submit(%s) = %v", r.ID, err)
		}
	}
}

func (l *lab) step() Result {
	res := l.Step(l.now)
	l.now += res.Duration
	return res
}

// drain steps until the engine is idle.
func (l *lab) drain() {
	l.t.Helper()
	for range 100_000 {
		if l.Idle() {
			return
		}
		l.step()
	}
	l.t.Fatal("engine does not become idle")
}

// ids joins the ids of requests.
func ids(list []*Request) string {
	var names []string
	for _, r := range list {
		names = append(names, r.ID)
	}
	return strings.Join(names, " ")
}

func TestChunkedPrefillStory(t *testing.T) {
	l := newLab(t, Config{BatchTokens: 1000})
	a := &Request{ID: "a", PromptTokens: 1500, OutputTokens: 3}
	b := &Request{ID: "b", PromptTokens: 1200, OutputTokens: 1}
	c := &Request{ID: "c", PromptTokens: 100, OutputTokens: 0}
	l.submit(a, b, c)
	steps := []struct {
		prefill, decode         int
		first, tokens, finished string
		outstanding             int
	}{
		{1000, 0, "", "", "", 1800},      // the head of the queue takes the whole budget
		{1000, 0, "a", "a", "", 800},     // its rest, and the next one with what is left
		{800, 1, "b c", "a b", "b c", 0}, // a decodes; c is an embedding and produces no token
		{0, 1, "", "a", "a", 0},
		{0, 0, "", "", "", 0},
	}
	for i, want := range steps {
		res := l.step()
		if res.PrefillTokens != want.prefill || res.DecodeTokens != want.decode {
			t.Errorf("step %d computed %d + %d tokens, want %d + %d", i, res.PrefillTokens, res.DecodeTokens, want.prefill, want.decode)
		}
		if ids(res.First) != want.first || ids(res.Tokens) != want.tokens || ids(res.Finished) != want.finished {
			t.Errorf("step %d: first [%s] tokens [%s] finished [%s], want [%s] [%s] [%s]", i,
				ids(res.First), ids(res.Tokens), ids(res.Finished), want.first, want.tokens, want.finished)
		}
		if got := l.OutstandingPrefill(); got != want.outstanding {
			t.Errorf("step %d leaves %d prefill tokens, want %d", i, got, want.outstanding)
		}
	}
	if !l.Idle() {
		t.Error("engine is not idle after its last request")
	}
	if a.State != Finished || a.Generated != 3 || a.FirstOutput >= a.Done || a.Done != l.now {
		t.Errorf("a ends %+v at %v", a, l.now)
	}
}

func TestDecodesTakeTheBudgetFirst(t *testing.T) {
	l := newLab(t, Config{BatchTokens: 10})
	l.submit(&Request{ID: "a", PromptTokens: 4, OutputTokens: 50}, &Request{ID: "b", PromptTokens: 4, OutputTokens: 50})
	l.step()
	l.submit(&Request{ID: "c", PromptTokens: 20, OutputTokens: 1})
	for i, want := range []int{8, 8, 4} {
		if res := l.step(); res.PrefillTokens != want || res.DecodeTokens != 2 {
			t.Errorf("step %d computed %d + %d tokens, want %d + 2", i, res.PrefillTokens, res.DecodeTokens, want)
		}
	}
}

func TestMaxSeqs(t *testing.T) {
	l := newLab(t, Config{MaxSeqs: 2})
	for _, id := range []string{"a", "b", "c"} {
		l.submit(&Request{ID: id, PromptTokens: 10, OutputTokens: 2})
	}
	l.step()
	if s := l.Stats(); s.Running != 2 || s.Waiting != 1 {
		t.Errorf("Stats() = %d running, %d waiting, want 2, 1", s.Running, s.Waiting)
	}
	l.step() // a and b end here
	if res := l.step(); ids(res.First) != "c" {
		t.Errorf("third step shows [%s] first, want [c]", ids(res.First))
	}
}

func TestStepDuration(t *testing.T) {
	decoding := func(l *lab) {
		l.submit(&Request{PromptTokens: 100_000, OutputTokens: 9}, &Request{PromptTokens: 49_998, OutputTokens: 9})
		for l.OutstandingPrefill() > 0 {
			l.step()
		}
	}
	for _, tc := range []struct {
		name  string
		cfg   Config
		setup func(*lab)
		want  time.Duration
	}{
		{"idle", Config{}, func(*lab) {}, 0},
		{"prefill", Config{}, func(l *lab) { l.submit(&Request{PromptTokens: 6000}) }, 506 * time.Millisecond},
		{"budget", Config{BatchTokens: 1200}, func(l *lab) { l.submit(&Request{PromptTokens: 6000}) }, 106 * time.Millisecond},
		{"decode", Config{}, decoding, 9 * time.Millisecond},
		{"both", Config{}, func(l *lab) { decoding(l); l.submit(&Request{PromptTokens: 600}) }, 59 * time.Millisecond},
		{"slow", Config{}, func(l *lab) { decoding(l); l.SetSlowdown(3) }, 27 * time.Millisecond},
		{"slow no more", Config{}, func(l *lab) { decoding(l); l.SetSlowdown(3); l.SetSlowdown(0) }, 9 * time.Millisecond},
		{
			"configured",
			Config{StepTime: time.Millisecond, PrefillRate: 1000},
			func(l *lab) { l.submit(&Request{PromptTokens: 500}) }, 501 * time.Millisecond,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, tc.cfg)
			tc.setup(l)
			if got := l.step().Duration; (got - tc.want).Abs() > time.Microsecond {
				t.Errorf("Duration = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestSubmitRefusesWhatNeverFits(t *testing.T) {
	for _, tc := range []struct {
		prompt, output int
		want           error
	}{
		{160, 0, nil}, {160, 1, nil}, {161, 0, ErrTooLong}, {160, 2, ErrTooLong}, {100, 61, nil}, {100, 62, ErrTooLong},
	} {
		l := newLab(t, Config{KVTokens: 160})
		r := &Request{PromptTokens: tc.prompt, OutputTokens: tc.output}
		if err := l.Submit(0, r); !errors.Is(err, tc.want) {
			t.Errorf("Submit(%d + %d tokens) = %v, want %v", tc.prompt, tc.output, err, tc.want)
		}
		l.drain()
		if want := map[bool]State{true: Finished, false: Unsubmitted}[tc.want == nil]; r.State != want {
			t.Errorf("%d + %d tokens end in state %v, want %v", tc.prompt, tc.output, r.State, want)
		}
	}
}

func TestAbort(t *testing.T) {
	l := newLab(t, Config{KVTokens: 1600, BatchTokens: 500})
	running := &Request{ID: "running", PromptTokens: 1500, OutputTokens: 5}
	waiting := &Request{ID: "waiting", PromptTokens: 1500, OutputTokens: 5}
	next := &Request{ID: "next", PromptTokens: 1500, OutputTokens: 1}
	l.submit(running, waiting, next)
	l.step()
	l.Abort(waiting)
	l.Abort(running)
	if s := l.Stats(); s.Running != 0 || s.Waiting != 1 || s.KVUsage != 0 {
		t.Errorf("Stats() = %+v after two aborts, want one waiting request and no KV in use", s)
	}
	if got := l.OutstandingPrefill(); got != 1500 {
		t.Errorf("OutstandingPrefill() = %d, want 1500", got)
	}
	l.drain()
	if running.State != Aborted || waiting.State != Aborted || next.State != Finished {
		t.Errorf("states %v, %v, %v, want aborted, aborted, finished", running.State, waiting.State, next.State)
	}
	l.Abort(next)
	if next.State != Finished {
		t.Errorf("Abort of an ended request leaves state %v, want finished", next.State)
	}
}

func TestRestart(t *testing.T) {
	l := newLab(t, Config{BatchTokens: 500, MaxSeqs: 1})
	chain := blocks(1, 30)
	a := &Request{ID: "a", PromptTokens: 480, Blocks: chain, OutputTokens: 5}
	b := &Request{ID: "b", PromptTokens: 480, OutputTokens: 5}
	l.submit(a, b)
	l.step()
	if got := ids(l.Restart()); got != "a b" {
		t.Errorf("Restart() = [%s], want [a b]", got)
	}
	if a.State != Failed || b.State != Failed {
		t.Errorf("states %v, %v, want failed", a.State, b.State)
	}
	if got := l.Stats(); got != (Stats{}) {
		t.Errorf("Stats() = %+v after a restart, want zero", got)
	}
	if !l.Idle() || l.OutstandingPrefill() != 0 || l.CachedPrefix(chain) != 0 {
		t.Errorf("idle %v, %d outstanding, %d cached after a restart", l.Idle(), l.OutstandingPrefill(), l.CachedPrefix(chain))
	}
	l.submit(a) // a client may try again
	l.drain()
	if a.State != Finished || a.CachedTokens != 0 || a.Generated != 5 {
		t.Errorf("second try ends %+v", a)
	}
}

func TestEqualSeedsGiveEqualRuns(t *testing.T) {
	run := func(seed uint64) []time.Duration {
		l := newLab(t, Config{Jitter: 0.2, Seed: seed})
		var times []time.Duration
		for range 20 {
			l.submit(&Request{PromptTokens: 1000, OutputTokens: 4})
			times = append(times, l.step().Duration)
		}
		return times
	}
	if a, b := run(1), run(1); !reflect.DeepEqual(a, b) {
		t.Errorf("equal seeds give %v and %v", a, b)
	}
	if a, b := run(1), run(2); reflect.DeepEqual(a, b) {
		t.Errorf("seeds 1 and 2 both give %v", a)
	}
	plain := New(Config{}).duration(1000, 0)
	for _, d := range run(3)[:1] {
		if d < plain*8/10 || d > plain*12/10 {
			t.Errorf("jitter 0.2 makes a step of %v last %v", plain, d)
		}
	}
}
