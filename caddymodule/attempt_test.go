// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/fleet"
)

// sending is an attempt whose body is about to be sent by a dispatch.
func sending(t *testing.T, maxBody int64) (*attempt, *http.Request) {
	t.Helper()
	const text = "the very same bytes"
	a := &attempt{count: 1, prefills: true}
	r := &http.Request{
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}
	a.body, a.whole = readBody(r, maxBody, 10_000)
	a.request, a.standIn = r, r.Body
	t.Cleanup(a.body.drop)
	a.renewBody(r)
	return a, r
}

func readSome(t *testing.T, r io.Reader) {
	t.Helper()
	if _, err := r.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
}

// What an upstream that was never reached did not receive has not harmed it, nor
// what it refuses.
func TestHarms(t *testing.T) {
	for status, harms := range map[int]bool{
		0: true, 500: true, 502: true, 504: true,
		400: false, 404: false, 429: false, 501: false, 503: false, 529: false,
	} {
		a, r := sending(t, 100)
		if a.harms(status) {
			t.Errorf("harms(%d) = true before anything was sent", status)
		}
		readSome(t, r.Body)
		if got := a.harms(status); got != harms {
			t.Errorf("harms(%d) = %v after something was sent, want %v", status, got, harms)
		}
	}
}

// The transport reads another body when it repeats the request itself, and the
// one of an earlier dispatch when that still goes on.
func TestHarmsByDispatch(t *testing.T) {
	a, r := sending(t, 100)
	again, err := r.GetBody()
	if err != nil {
		t.Fatal(err)
	}
	readSome(t, again)
	if !a.harms(0) {
		t.Error("harms(0) = false after the body was read that the transport asked for")
	}
	before := r.Body
	a.renewBody(r)
	readSome(t, before)
	if a.harms(0) {
		t.Error("harms(0) = true after a body of an earlier dispatch was read")
	}
}

func TestExhausted(t *testing.T) {
	a, r := sending(t, 100)
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

	a, r = sending(t, 3)
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
		a, _ := sending(t, 100)
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
	a, _ := sending(t, 100)
	a.prompt.PreviousResponse = "resp_1"
	if got := a.blame(http.StatusNotFound); got != fleet.BlameNone {
		t.Errorf("blame(404) of a request that names a response = %v, want none", got)
	}
	if got := a.blame(http.StatusForbidden); got != fleet.BlameDenied {
		t.Errorf("blame(403) of a request that names a response = %v, want denied", got)
	}
}
