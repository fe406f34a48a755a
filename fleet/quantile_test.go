// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
)

func counted(durations ...time.Duration) (h Histogram) {
	for _, d := range durations {
		h.observe(d)
	}
	return h
}

func TestQuantile(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name string
		of   Histogram
		q    float64
		want time.Duration
	}{
		{"nothing", counted(), 0.5, 0},
		{"one, in the middle of its bucket", counted(70 * ms), 0.5, 75 * ms},
		{"one, at the end of its bucket", counted(70 * ms), 1, 100 * ms},
		{"four in one bucket", counted(60*ms, 60*ms, 60*ms, 60*ms), 0.25, 62500 * time.Microsecond},
		{"the lower half", counted(10*ms, 10*ms, 3*time.Second, 3*time.Second), 0.5, 25 * ms},
		{"the upper half", counted(10*ms, 10*ms, 3*time.Second, 3*time.Second), 0.75, 3 * time.Second},
		{"beyond the last bound", counted(10*ms, time.Hour, time.Hour), 0.9, 2 * time.Minute},
		{"all beyond the last bound", counted(time.Hour), 0.5, 2 * time.Minute},
		{"before what is beyond", counted(10*ms, 10*ms, 10*ms, time.Hour), 0.75, 25 * ms},
	} {
		if got := test.of.Quantile(test.q); got != test.want {
			t.Errorf("%s: Quantile(%v) = %v, want %v", test.name, test.q, got, test.want)
		}
	}
}

func TestHistogramSince(t *testing.T) {
	before := counted(time.Second, time.Minute)
	now := before
	if later := now.Since(before); later.Count() != 0 {
		t.Errorf("Since() = %+v, want nothing", later)
	}
	more := counted(time.Second, time.Hour)
	now.Add(&more)
	if later := now.Since(before); later != more {
		t.Errorf("Since() = %+v, want %+v", later, more)
	}
	if later := more.Since(now); later != more {
		t.Errorf("Since() of one that has begun anew = %+v, want %+v", later, more)
	}
}
