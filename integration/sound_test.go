// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// answerError streams an error as vLLM does when the headers are sent.
func answerError(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush(w)
	io.WriteString(w, `data: {"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","param":null,"code":500}}`+"\n\ndata: [DONE]\n\n")
}

// wantSound fails the test unless nothing is held against any upstream.
func wantSound(t *testing.T, s *server, upstreams []*upstream) {
	t.Helper()
	f := s.fleet()
	for i, u := range upstreams {
		if got := f.of(u).State; got != "available" {
			t.Errorf("upstream %d is %s, want available", i, got)
		}
		if load := s.failedLoad(u); load != 0 {
			t.Errorf("upstream %d has a failed load of %v, want 0", i, load)
		}
	}
}

// What is wrong with a request opened the breakers of every upstream in turn until
// there was none left.
//
// What clients do wrong, and what they are told to wait for, is no upstream's
// fault, however often it comes.
func TestCaseC41ClientErrorsBlameNobody(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		answer http.HandlerFunc
	}{
		{"400", 400, fails(400)},
		{"422", 422, fails(422)},
		{"429", 429, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "17")
			fails(429)(w, r)
		}},
		{"error event of a client", 200, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}`+"\n\ndata: [DONE]\n\n")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := production(t, upstreams)
			for i := range 9 {
				wantStatus(t, ended(t, s.sites[0], chat(words(fmt.Sprint("good ", i), 300))), http.StatusOK)
			}
			for _, u := range upstreams {
				u.setAnswer(test.answer)
			}
			before := counts(upstreams)
			for i := range 100 {
				res, err := send(t.Context(), s.sites[0], chatPath, chat(words(fmt.Sprint("bad ", i), 300)))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				wantStatus(t, res.StatusCode, test.status)
				if got := res.Header.Get("Retry-After"); (got == "17") != (test.status == 429) {
					t.Errorf("Retry-After = %q", got)
				}
			}
			s.settled()
			wantSound(t, s, upstreams)
			for i, n := range counts(upstreams) {
				if n -= before[i]; n < 20 || n > 50 {
					t.Errorf("upstream %d received %d of 100 requests, want about a third", i, n)
				}
			}
		})
	}
}

// Clients that leave before anything has come are no upstream's fault.
func TestLeavingClientsBlameNobody(t *testing.T) {
	upstreams := newUpstreams(t, 3, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := production(t, upstreams)
	for i := range 30 {
		ctx, leave := context.WithCancel(t.Context())
		before := total(counts(upstreams))
		left := make(chan struct{})
		go func() {
			defer close(left)
			if res, err := send(ctx, s.sites[0], chatPath, chat(words(fmt.Sprint("leaves ", i), 300))); err == nil {
				res.Body.Close()
			}
		}()
		eventually(t, func() bool { return total(counts(upstreams)) > before }, func() string { return "no upstream has received the request" })
		leave()
		<-left
	}
	s.settled()
	wantSound(t, s, upstreams)
	if got := total(counts(upstreams)); got != 30 {
		t.Errorf("upstreams received %d requests, want each of 30 once", got)
	}
}

// An engine that is broken answers faster than any other. Of many clients few
// must see it, without any retry.
func TestBrokenUpstreamIsSeenByFew(t *testing.T) {
	const requests, clients = 1440, 16
	for _, test := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"500", fails(500)},
		{"404", fails(404)},
		{"error event", answerError},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 4, answerAtOnce)
			s := production(t, upstreams)
			upstreams[2].setAnswer(test.answer)
			var next, seen atomic.Int64
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for i := next.Add(1); i <= requests; i = next.Add(1) {
						res, err := send(t.Context(), s.sites[0], chatPath, chat(words(fmt.Sprint("request ", i), 300)))
						if err != nil {
							t.Error(err)
							return
						}
						text, err := io.ReadAll(res.Body)
						res.Body.Close()
						if err != nil {
							t.Error(err)
						}
						if res.StatusCode != http.StatusOK || strings.Contains(string(text), `"error"`) {
							seen.Add(1)
						}
					}
				})
			}
			wg.Wait()
			s.settled()
			if got := seen.Load(); got == 0 || got > requests*2/100 {
				t.Errorf("%d of %d requests saw the error, want some and at most %d", got, requests, requests*2/100)
			}
		})
	}
}

// A stream that holds nothing but an error is a failure in every API, and comes
// through as it is.
func TestErrorEventIsAFailure(t *testing.T) {
	for _, test := range []struct{ path, body string }{
		{chatPath, chat("hello")},
		{"/v1/completions", `{"model":"m","stream":true,"prompt":"hello"}`},
		{messagesPath, `{"model":"m","stream":true,"max_tokens":5,"messages":[{"role":"user","content":"hello"}]}`},
		{responsesPath, responses("hello")},
	} {
		t.Run(test.path, func(t *testing.T) {
			host := simulated(t, vllmsim.ServerConfig{})
			host.Server().SetFault(vllmsim.Fault{Request: vllmsim.FaultErrorEvent})
			s := start(t, fmt.Sprintf(oneSite, host.Addr()))
			_, want := exchange(t, host.Addr(), test.path, test.body)
			status, got := exchange(t, s.sites[0], test.path, test.body, "X-Session-ID", "s")
			if status != http.StatusOK || got != want || !strings.Contains(got, "EngineCore") {
				t.Errorf("status %d: %q, want 200 and %q", status, got, want)
			}
			s.settled()
			f := s.fleet()
			if got := f.onAddress(host.Addr()); f.Sessions != 0 || got.Releases["error"] != 1 || sum(got.Releases) != 1 {
				t.Errorf("%d sessions and releases %v, want none and one error", f.Sessions, got.Releases)
			}
			if s.failedLoadOf(host.Addr()) == 0 {
				t.Error("the upstream has no load of its failure")
			}
		})
	}
}

// A router was ready with no workers at all, and requests hung.
//
// Where there is nothing to choose from, the client is told so.
func TestCaseC47NoUpstreamsWithRetries(t *testing.T) {
	s := start(t, "{site0} {\nllm_loadaware\nreverse_proxy {\nlb_policy llm_loadaware\nlb_retries 2\n}\n}\n")
	if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusServiceUnavailable {
		t.Errorf("status %d without upstreams, want 503: %s", status, text)
	}
}

// A router fell over above a thousand users, and held back what was over a hundred
// connections to an upstream.
//
// However many requests there are, none is refused here: engines queue better
// than clients.
func TestCaseC56ThousandsAtOnce(t *testing.T) {
	requests := 2048
	if testing.Short() {
		requests = 512
	}
	held := newStage()
	arrived, failed := make(chan struct{}, requests), make(chan struct{}, requests)
	upstreams := newUpstreams(t, 3, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		held.answer(w, r)
	})
	s := production(t, upstreams)
	var wg sync.WaitGroup
	for i := range requests {
		wg.Go(func() {
			res, err := send(t.Context(), s.sites[0], chatPath, chat(fmt.Sprint("request ", i)))
			if err != nil {
				t.Error(err)
				failed <- struct{}{}
				return
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("status %d", res.StatusCode)
				failed <- struct{}{}
			}
			if text, err := io.ReadAll(res.Body); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				t.Errorf("response ends with %v: %q", err, text)
			}
		})
	}
	for range requests {
		select {
		case <-arrived:
		case <-failed:
		}
	}
	if got := s.inFlight(); got != requests {
		t.Errorf("in flight = %d, want %d", got, requests)
	}
	close(held.output)
	close(held.end)
	wg.Wait()
	s.settled()
}
