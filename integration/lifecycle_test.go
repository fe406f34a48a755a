// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// However a request ends, what is reserved afterwards is what still runs.
func TestEveryEndReleases(t *testing.T) {
	prompt := chat(words("the request", 4000))
	tests := []struct {
		name string
		// site is the second site; {first} and {second} are upstreams that
		// answer as first and second do, {refused} is one that is not there,
		// and {busy} is where the other stream runs
		site          string
		first, second http.HandlerFunc
		run           func(t *testing.T, s *server)
		causes        map[string]int
	}{
		{
			name:  "end",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: answerAtOnce,
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"first_output": 1},
		},
		{
			name:  "end of an unstreamed response",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"choices":[]}`) },
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], unstreamed(prompt)), 200)
			},
			causes: map[string]int{"first_output": 1},
		},
		{
			name: "end without output",
			site: fmt.Sprintf(proxyTo, "{first}", ""),
			first: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, ": nothing\n\n")
			},
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"end": 1},
		},
		{
			name:  "no content",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 204)
			},
			causes: map[string]int{"end": 1},
		},
		{
			name:  "server error",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: fails(500),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 500)
			},
			causes: map[string]int{"error": 1},
		},
		{
			name:  "client error",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: fails(400),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 400)
			},
			causes: map[string]int{"error": 1},
		},
		{
			name: "connection refused",
			site: fmt.Sprintf(proxyTo, "{refused}", ""),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 502)
			},
			causes: map[string]int{"error": 1},
		},
		{
			name: "connection refused, retried there",
			site: fmt.Sprintf(proxyTo, "{refused}", "lb_retries 2"),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 502)
			},
			causes: map[string]int{"retried": 2, "error": 1},
		},
		{
			name: "connection refused, retried on another upstream",
			// the other one is busier, so this is the one to try first
			site: fmt.Sprintf(proxyTo, "{refused} {busy}", "lb_retries 1"),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"retried": 1, "first_output": 1},
		},
		{
			name:  "status retried on another upstream",
			site:  fmt.Sprintf(proxyTo, "{first} {busy}", retryOn503),
			first: fails(503),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"retried": 1, "first_output": 1},
		},
		{
			name:   "status retried to no avail",
			site:   fmt.Sprintf(proxyTo, "{first} {second}", retryOn503),
			first:  fails(503),
			second: fails(503),
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 503)
			},
			causes: map[string]int{"retried": 2, "error": 1},
		},
		{
			name:  "reset before headers",
			site:  fmt.Sprintf(proxyTo, "{first}", ""),
			first: func(w http.ResponseWriter, _ *http.Request) { reset(w) },
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 502)
			},
			causes: map[string]int{"error": 1},
		},
		{
			name:  "reset before headers, retried on another upstream",
			site:  fmt.Sprintf(proxyTo, "{first} {busy}", "lb_retries 1\nlb_retry_match `{rp.is_transport_error} && method('POST')`"),
			first: func(w http.ResponseWriter, _ *http.Request) { reset(w) },
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"retried": 1, "first_output": 1},
		},
		{
			name: "error page",
			site: fmt.Sprintf(proxyTo, "{refused}", "") + "handle_errors {\nrespond \"sorry\"\n}\n",
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 502)
			},
			causes: map[string]int{"error": 1},
		},
		{
			name:  "error route that proxies again",
			site:  fmt.Sprintf(proxyTo, "{refused}", "") + "handle_errors {\n" + fmt.Sprintf(proxyTo, "{first}", "") + "}\n",
			first: answerAtOnce,
			run: func(t *testing.T, s *server) {
				res, err := send(t.Context(), s.sites[1], chatPath, prompt)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if text := rest(t, res); !strings.HasSuffix(text, "data: [DONE]\n\n") {
					t.Errorf("response ends %q", text)
				}
			},
			causes: map[string]int{"error": 1, "first_output": 1},
		},
		{
			name: "error route that proxies again without a handler",
			site: fmt.Sprintf(proxyTo, "{refused}", "") +
				"handle_errors {\nreverse_proxy {first} {\nlb_policy llm_loadaware\n}\n}\n",
			first: answerAtOnce,
			run: func(t *testing.T, s *server) {
				ended(t, s.sites[1], prompt)
			},
			causes: map[string]int{"error": 1, "end": 1},
		},
		{
			name:  "without a handler",
			site:  "reverse_proxy {first} {\nlb_policy llm_loadaware\n}\n",
			first: answerAtOnce,
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"end": 1},
		},
		{
			name:  "nested handlers",
			site:  "llm_loadaware\nhandle {\n" + fmt.Sprintf(proxyTo, "{first}", "") + "}\n",
			first: answerAtOnce,
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 200)
			},
			causes: map[string]int{"first_output": 1},
		},
		{
			name: "no upstream",
			site: "llm_loadaware\nreverse_proxy {\ndynamic changing nothing\nlb_policy llm_loadaware\n}\n",
			run: func(t *testing.T, s *server) {
				wantStatus(t, ended(t, s.sites[1], prompt), 503)
			},
			causes: map[string]int{},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			busy := newUpstream(t, nil)
			first, second := newUpstream(t, test.first), newUpstream(t, test.second)
			site := strings.NewReplacer("{first}", first.address(), "{second}", second.address(),
				"{busy}", busy.address(), "{refused}", freeAddress(t)).Replace(test.site)
			s := start(t, fmt.Sprintf(twoSites, busy.address(), site))
			other := open(t, s, []*upstream{busy}, chat(words("the other one", 9000)))
			busy.setAnswer(answerAtOnce)
			running, before := s.held(), s.fleet().total().Releases

			test.run(t, s)
			s.returnsTo(running)
			if got := since(before, s.fleet().total().Releases); !maps.Equal(got, test.causes) {
				t.Errorf("causes = %v, want %v", got, test.causes)
			}
			other.show(s)
			other.end()
			s.settled()
		})
	}
}

func wantStatus(t *testing.T, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("status = %d, want %d", got, want)
	}
}

// The error route's upstream gets all of the body, though the first proxy was
// in the middle of sending it.
func TestErrorRouteSendsWholeBody(t *testing.T) {
	for _, test := range []struct{ name, errors string }{
		{"with a handler", proxyTo},
		{"without a handler", "reverse_proxy %s {\nlb_policy llm_loadaware\n%s\n}\n"},
		{"with another policy", "reverse_proxy %s {\nlb_policy first\n%s\n}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			prompt := chat(words("the request", 200_000))
			first := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { reset(w) })
			second := newUpstream(t, answerAtOnce)
			s := start(t, fmt.Sprintf("{site0} {\n"+proxyTo+"handle_errors {\n"+test.errors+"}\n}\n",
				first.address(), "", second.address(), ""))
			ended(t, s.sites[0], prompt)
			if got := second.last(); got.body != prompt {
				t.Errorf("second upstream got %d bytes, want the whole body of %d", len(got.body), len(prompt))
			}
			s.settled()
		})
	}
}
