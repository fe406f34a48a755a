// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/fleet"
)

// sending is an attempt that is about to be dispatched, and what its transport
// tells of it.
func sending(t *testing.T, maxBody int64) (*attempt, *http.Request, *httptrace.ClientTrace) {
	t.Helper()
	const text = "the very same bytes"
	a := &attempt{count: 1, prefills: true, policy: new(LoadAwareSelection)}
	r := &http.Request{
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
	a.body, a.whole = readBody(r, maxBody, 10_000)
	r = a.traced(r)
	a.request, a.standIn = r, r.Body
	t.Cleanup(a.body.drop)
	a.renewBody(r)
	return a, r, httptrace.ContextClientTrace(r.Context())
}

func readSome(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := r.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
}

// Whoever answers has had the request, and has not failed on it where it was
// refused.
func TestHarmsByStatus(t *testing.T) {
	for status, want := range map[int]bool{
		500: true, 502: true, 504: true,
		400: false, 404: false, 429: false, 501: false, 503: false, 529: false,
	} {
		a, _, _ := sending(t, 100)
		if got := a.harms(status); got != want {
			t.Errorf("harms(%d) = %v, want %v", status, got, want)
		}
	}
}

// Without an answer it depends on what the transport could send. A kept-alive
// connection that the upstream had closed is no failure of anyone.
func TestNoAnswer(t *testing.T) {
	type told struct{ kept, cut bool }
	for _, test := range []struct {
		name  string
		told  []told
		harms bool
		blame fleet.Blame
	}{
		{"refused", nil, false, fleet.BlameFailure},
		{"cut on a new connection", []told{{false, true}}, false, fleet.BlameFailure},
		{"cut on a kept one", []told{{true, true}}, false, fleet.BlameNone},
		{"cut on a kept one, then on a new one", []told{{true, true}, {false, true}}, false, fleet.BlameFailure},
		{"sent on a new one", []told{{false, false}}, true, fleet.BlameFailure},
		{"sent on a kept one", []told{{true, false}}, true, fleet.BlameFailure},
		{"sent on a kept one, then cut on another", []told{{true, false}, {true, true}}, true, fleet.BlameFailure},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, r, trace := sending(t, 100)
			for _, told := range test.told {
				trace.GotConn(httptrace.GotConnInfo{Reused: told.kept})
				var info httptrace.WroteRequestInfo
				if told.cut {
					info.Err = io.ErrClosedPipe
				}
				trace.WroteRequest(info)
			}
			if harms, blame := a.harms(0), a.blame(0); harms != test.harms || blame != test.blame {
				t.Errorf("harms(0), blame(0) = %v, %v, want %v, %v", harms, blame, test.harms, test.blame)
			}
			a.renewBody(r)
			if a.harms(0) {
				t.Error("harms(0) = true for the next dispatch before anything was sent")
			}
		})
	}
	a := &attempt{prefills: true}
	if a.harms(0) || a.blame(0) != fleet.BlameFailure {
		t.Errorf("harms(0), blame(0) = %v, %v without a trace, want false, failure", a.harms(0), a.blame(0))
	}
}

func TestExhausted(t *testing.T) {
	a, r, _ := sending(t, 100)
	readSome(t, r.Body)
	if a.exhausted() {
		t.Error("exhausted() = true for a body that can be sent again")
	}
	for i, want := range []bool{false, true, true} {
		a.harmed = i + 1
		if got := a.exhausted(); got != want {
			t.Errorf("exhausted() = %v after %d were harmed, want %v", got, a.harmed, want)
		}
	}

	a, r, _ = sending(t, 3)
	if a.exhausted() {
		t.Error("exhausted() = true for a long body before it was read")
	}
	readSome(t, r.Body)
	if !a.exhausted() {
		t.Error("exhausted() = false for a body that cannot be sent again")
	}
	if new(attempt).exhausted() {
		t.Error("exhausted() = true for a request without a body")
	}
}

func TestBlameOfStatus(t *testing.T) {
	for status, want := range map[int]fleet.Blame{
		0: fleet.BlameFailure, 500: fleet.BlameFailure, 502: fleet.BlameFailure, 504: fleet.BlameFailure, 529: fleet.BlameFailure,
		501: fleet.BlameNone, 503: fleet.BlameFull,
		401: fleet.BlameDenied, 403: fleet.BlameDenied, 404: fleet.BlameDenied,
		400: fleet.BlameNone, 408: fleet.BlameNone, 413: fleet.BlameNone, 422: fleet.BlameNone, 429: fleet.BlameNone, 499: fleet.BlameNone,
	} {
		a, _, _ := sending(t, 100)
		if got := a.blame(status); got != want {
			t.Errorf("blame(%d) = %v, want %v", status, got, want)
		}
		if a.body.failed.Store(true); a.blame(status) != fleet.BlameNone {
			t.Errorf("blame(%d) = %v for a client that has broken its body off, want none", status, a.blame(status))
		}
	}
}

// A response that another upstream has stored is not known here, whatever else
// the upstream serves.
func TestUnknownResponseIsNobodysFault(t *testing.T) {
	a, _, _ := sending(t, 100)
	a.prompt.PreviousResponse = "resp_1"
	if got := a.blame(http.StatusNotFound); got != fleet.BlameNone {
		t.Errorf("blame(404) of a request that names a response = %v, want none", got)
	}
	if got := a.blame(http.StatusForbidden); got != fleet.BlameDenied {
		t.Errorf("blame(403) of a request that names a response = %v, want denied", got)
	}
}

// One dead connection is enough, and is remembered over the retries. One that has
// had all of the request was not seen to be dead: only the transport that goes on
// with another one in the same dispatch knows that.
func TestMetDeadConnection(t *testing.T) {
	for _, test := range []struct {
		name       string
		kept       bool
		write      error
		now, later bool
	}{
		{"sent on a kept one", true, nil, true, false},
		{"cut on a kept one", true, io.ErrClosedPipe, true, true},
		{"sent on a new one", false, nil, false, false},
		{"cut on a new one", false, io.ErrClosedPipe, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, r, trace := sending(t, 100)
			if a.wire.Load().metDead() {
				t.Error("before anything: it has met a dead connection")
			}
			trace.GotConn(httptrace.GotConnInfo{Reused: test.kept})
			if a.wire.Load().metDead() {
				t.Error("with the connection: it has met a dead one")
			}
			trace.WroteRequest(httptrace.WroteRequestInfo{Err: test.write})
			if got := a.wire.Load().metDead(); got != test.now {
				t.Errorf("in the same dispatch: %v, want %v", got, test.now)
			}
			for range 2 {
				a.count++
				a.renewBody(r)
				if got := a.wire.Load().metDead(); got != test.later {
					t.Errorf("in a later dispatch: %v, want %v", got, test.later)
				}
			}
		})
	}
}
