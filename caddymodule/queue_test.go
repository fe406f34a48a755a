// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/sessions"
)

func TestClassOf(t *testing.T) {
	for _, test := range []struct {
		field, value string
		want         fleet.Class
	}{
		{"X-Class", "batch", fleet.Batch},
		{"X-Class", "interactive", fleet.Interactive},
		{"X-Class", "1", fleet.Batch},
		{"X-Class", "0.5", fleet.Batch},
		{"X-Class", "0", fleet.Interactive},
		{"X-Class", "-3", fleet.Interactive},
		{"X-Class", "NaN", fleet.Interactive},
		{"X-Class", "Batch", fleet.Interactive},
		{"X-Class", "", fleet.Interactive},
		// nothing is read without the option
		{"", "batch", fleet.Interactive},
	} {
		header := http.Header{"X-Class": {test.value}, "": {test.value}}
		if got := classOf(header, test.field); got != test.want {
			t.Errorf("classOf(%q in %q) = %v, want %v", test.value, test.field, got, test.want)
		}
	}
}

// Clients are told apart by the first of session, credentials and address.
func TestClientOf(t *testing.T) {
	client := func(session uint64, address string, header ...string) uint64 {
		r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
		r.RemoteAddr = "10.0.0.9:1234"
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		vars := map[string]any{}
		if address != "" {
			vars[caddyhttp.ClientIPVarKey] = address
		}
		r = r.WithContext(context.WithValue(r.Context(), caddyhttp.VarsCtxKey, vars))
		return clientOf(r, &fleet.Request{Session: sessions.Key(session)})
	}
	same := [][2]uint64{
		{client(5, "1.1.1.1"), client(5, "2.2.2.2", "Authorization", "a")},
		{client(0, "1.1.1.1", "Authorization", "a"), client(0, "2.2.2.2", "Authorization", "a", "X-Api-Key", "b")},
		{client(0, "1.1.1.1", "X-Api-Key", "a"), client(0, "2.2.2.2", "X-Api-Key", "a")},
		{client(0, "10.0.0.9"), client(0, "")},
	}
	for i, pair := range same {
		if pair[0] != pair[1] {
			t.Errorf("pair %d is two clients, want one", i)
		}
	}
	different := map[uint64]bool{}
	for _, c := range []uint64{
		client(5, "1.1.1.1"), client(0, "1.1.1.1", "Authorization", "a"), client(0, "1.1.1.1", "Authorization", "b"),
		client(0, "1.1.1.1", "X-Api-Key", "a"), client(0, "1.1.1.1"), client(0, "2.2.2.2"), client(0, ""),
	} {
		different[c] = true
	}
	if len(different) != 7 {
		t.Errorf("%d clients, want 7", len(different))
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	for _, test := range []struct {
		estimate time.Duration
		random   float64
		want     int
	}{
		{0, 0, 1},
		{0, 1, 1},
		{-time.Second, 0.5, 1},
		{time.Millisecond, 0, 1},
		{2 * time.Second, 0, 2},
		{2001 * time.Millisecond, 0, 3},
		{8 * time.Second, 1, 10},
		{59 * time.Second, 1, 60},
		{time.Hour, 0, 60},
		{1<<63 - 1, 1, 60},
	} {
		if got := retryAfterSeconds(test.estimate, test.random); got != test.want {
			t.Errorf("retryAfterSeconds(%v, %v) = %v, want %v", test.estimate, test.random, got, test.want)
		}
	}
}

// What has begun is not answered a second time, and what failed for another
// reason is not answered at all.
func TestOnlyRefusalsAreAnswered(t *testing.T) {
	failure := caddyhttp.Error(http.StatusServiceUnavailable, nil)
	for _, test := range []struct {
		name     string
		refused  bool
		begun    bool
		gone     bool
		status   int
		answered bool
	}{
		{name: "refused", refused: true, status: 429, answered: true},
		{name: "refused a client that has left", refused: true, gone: true, status: 499, answered: true},
		{name: "begun", refused: true, begun: true, status: 200},
		{name: "not refused", status: 200}, // the recorder's own
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader("{}"))
			r = r.WithContext(context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{}))
			h := &Handler{logger: caddy.Log()}
			w := httptest.NewRecorder()
			next := caddyhttp.HandlerFunc(func(w http.ResponseWriter, r *http.Request) error {
				if test.refused {
					attemptOf(r).refusal = &refusal{cause: fleet.RefusedFull}
				}
				if test.begun {
					w.WriteHeader(http.StatusOK)
				}
				if test.gone {
					cancel()
				}
				return failure
			})
			if err := h.ServeHTTP(w, r, next); (err == nil) != test.answered || w.Code != test.status {
				t.Errorf("ServeHTTP() = %v with status %d, want status %d, answered %v", err, w.Code, test.status, test.answered)
			}
		})
	}
}

func TestValidateQueue(t *testing.T) {
	for _, test := range []struct {
		queue *Queue
		names string
	}{
		{nil, ""},
		{&Queue{MaxRequests: 1}, ""},
		{&Queue{MaxPrefillTokens: 1, MaxWaiting: 1, MaxWait: 1, PriorityHeader: "x"}, ""},
		{&Queue{}, "max_prefill_tokens or max_requests"},
		{&Queue{MaxPrefillTokens: -1, MaxRequests: 1}, "max_prefill_tokens"},
		{&Queue{MaxRequests: -1, MaxPrefillTokens: 1}, "max_requests"},
		{&Queue{MaxRequests: 1, MaxWaiting: -1}, "max_waiting"},
		{&Queue{MaxRequests: 1, MaxWait: -1}, "max_wait"},
	} {
		p := &LoadAwareSelection{Queue: test.queue}
		p.setDefaults()
		err := p.Validate()
		if (err != nil) != (test.names != "") || err != nil && !strings.Contains(err.Error(), test.names) {
			t.Errorf("Validate() of %+v = %v, want an error with %q", test.queue, err, test.names)
		}
	}
}

// An upstream may say when it has room again in seconds or by the clock.
func TestRetryAfterOfAnUpstream(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"7":                             7 * time.Second,
		"0":                             0,
		"999999999":                     999999999 * time.Second,
		"99999999999999999999":          0,
		"-1":                            0,
		"1.5":                           0,
		"":                              0,
		"soon":                          0,
		"Sun, 01 Mar 2026 12:00:30 GMT": 30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("retryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}
