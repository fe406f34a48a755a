// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// await reads a call until its first request has ended, and returns when it showed its first output and when it ended.
func await(t *testing.T, d *driver, c *call) (first, end time.Duration) {
	t.Helper()
	begin := time.Now()
	for {
		news, err := d.next(t.Context(), c)
		if err != nil {
			t.Fatalf("next() = %v", err)
		}
		if news[0].shown && first == 0 {
			first = time.Since(begin)
		}
		if news[0].done {
			return first, time.Since(begin)
		}
	}
}

func TestDriverKeepsTime(t *testing.T) {
	for _, tc := range []struct {
		name        string
		speed, slow float64
		first, end  time.Duration
	}{
		// 6 ms and 594 ms of prefill, then ten decode steps of 6 ms and a little
		{"real time", 1, 1, 600 * time.Millisecond, 660 * time.Millisecond},
		{"ten times faster", 10, 1, 60 * time.Millisecond, 66 * time.Millisecond},
		{"and three times slower", 10, 3, 180 * time.Millisecond, 198 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriver(Config{}, tc.speed)
				defer d.close()
				d.with(func(e *Engine) { e.SetSlowdown(tc.slow) })
				c, err := d.start(t.Context(), &Request{PromptTokens: 7128, OutputTokens: 11})
				if err != nil {
					t.Fatal(err)
				}
				first, end := await(t, d, c)
				if first.Round(time.Millisecond) != tc.first {
					t.Errorf("first output after %v, want %v", first, tc.first)
				}
				if end < tc.end || end > tc.end+tc.end/20 {
					t.Errorf("end after %v, want %v", end, tc.end)
				}
			})
		})
	}
}

func TestDriverShowsStepsAtTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(Config{}, 1)
		defer d.close()
		c, err := d.start(t.Context(), &Request{PromptTokens: 5928, OutputTokens: 100}) // 500 ms
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(499 * time.Millisecond)
		if s := d.stats(); s.Running != 0 || s.PrefillTokens != 0 {
			t.Errorf("stats() in the first step = %+v, want zero", s)
		}
		<-time.After(2 * time.Millisecond)
		if s := d.stats(); s.Running != 1 || s.PrefillTokens != 5928 || s.GeneratedTokens != 1 {
			t.Errorf("stats() after the first step = %+v, want one running request", s)
		}

		// vLLM's gauges freeze when everything is aborted: no step corrects them
		d.abort(c)
		<-time.After(time.Second)
		if s := d.stats(); s.Running != 1 {
			t.Errorf("stats() after the abort = %+v, want the last step's", s)
		}
		d.with(func(e *Engine) {
			if !e.Idle() {
				t.Error("engine is not idle after the abort")
			}
		})
	})
}

func TestDriverPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(Config{}, 1)
		defer d.close()
		d.pause(true)
		c, err := d.start(t.Context(), &Request{PromptTokens: 100, OutputTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := d.next(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("next() of a paused driver = %v, want a timeout", err)
		}
		d.pause(false)
		if first, _ := await(t, d, c); first > 20*time.Millisecond {
			t.Errorf("first output %v after the pause", first)
		}
	})
}

func TestDriverRestartAndClose(t *testing.T) {
	for name, end := range map[string]func(*driver){"restart": (*driver).restart, "close": (*driver).close} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := newDriver(Config{MaxSeqs: 1}, 1)
				defer d.close()
				// one that finishes with the step in progress, and one that waits
				running, err := d.start(t.Context(), &Request{PromptTokens: 1000, OutputTokens: 1})
				if err != nil {
					t.Fatal(err)
				}
				waiting, err := d.start(t.Context(), &Request{PromptTokens: 1000, OutputTokens: 1})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(10 * time.Millisecond)
				end(d)
				for _, c := range []*call{running, waiting} {
					if _, err := d.next(t.Context(), c); !errors.Is(err, errGone) {
						t.Errorf("next() = %v, want %v", err, errGone)
					}
				}
				<-time.After(time.Second)
				if s := d.stats(); s != (Stats{}) {
					t.Errorf("stats() = %+v, want zero: the step belongs to the old process", s)
				}
				if _, err := d.start(t.Context(), &Request{PromptTokens: 1}); (err != nil) != (name == "close") {
					t.Errorf("start() after %s = %v", name, err)
				}
			})
		})
	}
}
