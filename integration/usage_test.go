// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// telling is a site whose responses say what their prompt was estimated at.
const telling = `
{site0} {
	%[2]s
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware
		header_down X-Prompt-Tokens {http.llm_loadaware.prompt_tokens}
	}
}
`

// simulated starts a fast simulated server, of the model m if config names none.
func simulated(t *testing.T, config vllmsim.ServerConfig) *vllmsim.Host {
	t.Helper()
	if config.Models == nil {
		config.Models = []string{"m"}
	}
	config.Speed = 10_000
	host, err := vllmsim.NewHost(vllmsim.NewServer(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	return host
}

// estimateOf sends a request to its end and returns what its prompt was
// estimated at.
func estimateOf(t *testing.T, s *server, path, body string) float64 {
	t.Helper()
	res := begin(t, s.sites[0], path, body)
	rest(t, res)
	s.settled()
	n, err := strconv.ParseFloat(res.Header.Get("X-Prompt-Tokens"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Whatever the API, the usage of responses makes the estimates those of the
// model's own tokens, and tells how much of the cache was there.
func TestUsageCorrectsEstimates(t *testing.T) {
	text := words("some text", 12_000)
	for _, test := range []struct{ name, path, body string }{
		{"chat, streamed", chatPath, `{"model":"m","max_tokens":4,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":%q}]}`},
		{"chat", chatPath, `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":%q}]}`},
		{"completions, streamed", "/v1/completions", `{"model":"m","max_tokens":4,"stream":true,"stream_options":{"include_usage":true},"prompt":%q}`},
		{"completions", "/v1/completions", `{"model":"m","max_tokens":4,"prompt":%q}`},
		{"responses, streamed", "/v1/responses", `{"model":"m","max_output_tokens":4,"stream":true,"input":%q}`},
		{"responses", "/v1/responses", `{"model":"m","max_output_tokens":4,"input":%q}`},
		{"messages, streamed", "/v1/messages", `{"model":"m","max_tokens":4,"stream":true,"messages":[{"role":"user","content":%q}]}`},
		{"messages", "/v1/messages", `{"model":"m","max_tokens":4,"messages":[{"role":"user","content":%q}]}`},
		{"a long answer", chatPath, `{"model":"m","max_tokens":1024,"messages":[{"role":"user","content":%q}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			host := simulated(t, vllmsim.ServerConfig{BytesPerToken: 3, PromptTokensDetails: true})
			s := start(t, fmt.Sprintf(telling, host.Addr(), ""))
			body := fmt.Sprintf(test.body, text)
			first := estimateOf(t, s, test.path, body)
			for range 19 {
				estimateOf(t, s, test.path, body)
			}
			truth := float64(len(text)) / 3
			if last := estimateOf(t, s, test.path, body); math.Abs(last-truth) > math.Abs(first-truth)/2 {
				t.Errorf("estimate after 20 responses = %v, at first %v, want it to be nearer to %v", last, first, truth)
			}
			predicted, reported := s.metric("prompt_tokens_predicted_total"), s.metric("prompt_tokens_reported_total")
			if reported < 21*truth || reported > 22*truth || predicted < 0.7*reported || predicted > 1.1*reported {
				t.Errorf("prompt tokens: %v predicted, %v reported, want both near 21 times %v", predicted, reported, truth)
			}
			u := s.fleet().total()
			if u.CachedReported < 10_000 || u.CachedPredicted < u.CachedReported/2 || u.CachedPredicted > u.CachedReported {
				t.Errorf("cached tokens: %d predicted, %d reported, want some tens of thousands of both, and no more predicted",
					u.CachedPredicted, u.CachedReported)
			}
			for name, want := range map[string]int{"cached_tokens_predicted_total": u.CachedPredicted, "cached_tokens_reported_total": u.CachedReported} {
				if got := s.metric(name); got != float64(want) {
					t.Errorf("%s = %v, want %d as in the admin view", name, got, want)
				}
			}
		})
	}
}

// usageEvents is the end of a stream whose prompt had twice as many tokens as is
// estimated.
const usageEvents = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":24000,\"prompt_tokens_details\":{\"cached_tokens\":12}}}\n\ndata: [DONE]\n\n"

func answerWithUsage(w http.ResponseWriter, r *http.Request) {
	answerAtOnce(w, r)
	io.WriteString(w, usageEvents)
}

// What says nothing of a text's tokens, or not reliably, corrects nothing.
func TestUsageThatTellsNothing(t *testing.T) {
	text := words("some text", 12_000)
	media := fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":%q},`+
		`{"type":"image_url","image_url":{"url":"http://a/b"}}]}]}`, text)
	whole := func(t *testing.T, s *server, body string) {
		if status, answer := exchange(t, s.sites[0], chatPath, body); status != http.StatusOK || !strings.Contains(answer, "usage") {
			t.Fatalf("status %d: %s", status, answer)
		}
	}
	for _, test := range []struct {
		name, site, body string
		answer           http.HandlerFunc
		send             func(t *testing.T, s *server, body string)

		// tells says that it does, so that the others mean something, and
		// cached that it tells of the cache
		tells, cached bool
	}{
		{name: "usage", body: chat(text), answer: answerWithUsage, send: whole, tells: true, cached: true},
		{name: "compressed further out", site: "encode gzip", body: chat(text), answer: answerWithUsage, send: whole, tells: true, cached: true},
		{name: "media", body: media, answer: answerWithUsage, send: whole, cached: true},
		{name: "compressed", body: chat(text), send: whole, answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(gzipped(usageEvents))
		}},
		{name: "an error", body: chat(text), answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			answerWithUsage(w, r)
		}, send: func(t *testing.T, s *server, body string) { wantStatus(t, ended(t, s.sites[0], body), 400) }},
		{name: "upstream dies", body: chat(text), answer: func(w http.ResponseWriter, r *http.Request) {
			answerWithUsage(w, r)
			flush(w)
			panic(http.ErrAbortHandler)
		}, send: func(t *testing.T, s *server, body string) { wantStatus(t, ended(t, s.sites[0], body), 200) }},
		{name: "client leaves", body: chat(text), answer: func(w http.ResponseWriter, r *http.Request) {
			answerWithUsage(w, r)
			flush(w)
			<-r.Context().Done()
		}, send: func(t *testing.T, s *server, body string) {
			ctx, cancel := context.WithCancel(t.Context())
			res, err := send(ctx, s.sites[0], chatPath, body)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if _, err := io.ReadAtLeast(res.Body, make([]byte, 1000), len(usageEvents)); err != nil {
				t.Fatal(err)
			}
			cancel()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newUpstream(t, answerAtOnce)
			s := start(t, fmt.Sprintf(telling, up.address(), test.site))
			first := estimateOf(t, s, chatPath, chat(text))
			up.setAnswer(test.answer)
			for range 5 {
				test.send(t, s, test.body)
				s.settled()
			}
			up.setAnswer(answerAtOnce)
			if last := estimateOf(t, s, chatPath, chat(text)); (last > first) != test.tells || last < first {
				t.Errorf("estimate = %v, at first %v, want it to grow: %v", last, first, test.tells)
			}
			if got := s.fleet().total(); (got.CachedReported != 0) != test.cached {
				t.Errorf("cached tokens: %d reported, want some: %v", got.CachedReported, test.cached)
			}
		})
	}
}
