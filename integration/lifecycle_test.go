// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(new(changingUpstreams))
}

// changingUpstreams is a source of upstreams that a test changes at any time.
type changingUpstreams struct {
	Name string `json:"name"`
}

// changing are the addresses of the sources, by their name.
var changing sync.Map

// CaddyModule returns the Caddy module information.
func (*changingUpstreams) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.upstreams.changing",
		New: func() caddy.Module { return new(changingUpstreams) },
	}
}

// UnmarshalCaddyfile takes the name of the source.
func (c *changingUpstreams) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if !d.Args(&c.Name) {
		return d.ArgErr()
	}
	return nil
}

// GetUpstreams implements reverseproxy.UpstreamSource.
func (c *changingUpstreams) GetUpstreams(*http.Request) ([]*reverseproxy.Upstream, error) {
	var list []*reverseproxy.Upstream
	if addresses, ok := changing.Load(c.Name); ok {
		for _, address := range addresses.([]string) {
			list = append(list, &reverseproxy.Upstream{Dial: address})
		}
	}
	return list, nil
}

// holds is what one upstream has reserved.
type holds struct{ Requests, Waiting, Tokens int }

// held is what every upstream has reserved that has anything.
func (s *server) held() map[string]holds {
	s.t.Helper()
	held := map[string]holds{}
	for _, u := range s.fleet().Upstreams {
		if h := (holds{u.RequestsInFlight, u.RequestsWaiting, u.PrefillTokens}); h != (holds{}) {
			held[u.Upstream] = h
		}
	}
	return held
}

// returnsTo waits until exactly want is reserved.
func (s *server) returnsTo(want map[string]holds) {
	s.t.Helper()
	var got map[string]holds
	eventually(s.t, func() bool { got = s.held(); return maps.Equal(got, want) },
		func() string { return fmt.Sprintf("held = %v, want %v", got, want) })
}

// nonzero drops the counts that are 0.
func nonzero(counts map[string]int) map[string]int {
	rest := map[string]int{}
	for name, n := range counts {
		if n != 0 {
			rest[name] = n
		}
	}
	return rest
}

// since is how much the counts have grown.
func since(before, after map[string]int) map[string]int {
	grown := map[string]int{}
	for name, n := range after {
		grown[name] = n - before[name]
	}
	return nonzero(grown)
}

// hijack takes the connection of a response over.
func hijack(w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return conn
}

// reset ends the connection of a request with a TCP reset.
func reset(w http.ResponseWriter) {
	conn := hijack(w)
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

const (
	eventStreamHeader = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	firstEventChunk   = "f\r\ndata: {\"a\":1}\n\n\r\n"
)

// resetAfter writes text as it is and resets the connection once the signal
// comes.
func resetAfter(text string, signal <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn := hijack(w)
		defer conn.Close()
		io.WriteString(conn, text)
		<-signal
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
}

// fails answers with an error status.
func fails(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		io.WriteString(w, `{"error":{"message":"no"}}`)
	}
}

// ended runs a request that may be answered in any way, to its end.
func ended(t *testing.T, site, body string, header ...string) (status int) {
	t.Helper()
	res, err := send(t.Context(), site, chatPath, body, header...)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// twoSites has a stream of its own running on the first site while the second
// one has what the test is about. Both use the default fleet.
const twoSites = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
{site1} {
	%s
}
`

const proxyTo = `
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
		transport http {
			keepalive off
		}
		%s
	}
`

const retryOn503 = "lb_retries 2\nlb_retry_match `{rp.status_code} == 503`"

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

// A client that leaves is no failure, at whatever moment it does.
func TestClientLeaves(t *testing.T) {
	prompt := words("the request", 4000)
	tests := []struct {
		name   string
		answer func(st *stage) http.HandlerFunc
		// headers and output say how far the response gets before
		headers, output bool
		close           bool // closes the response instead of canceling
		cause           string
	}{
		{name: "before headers", answer: func(*stage) http.HandlerFunc {
			return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		}, cause: "canceled"},
		{name: "before the first output", answer: stageAnswer, headers: true, cause: "canceled"},
		{name: "in the middle", answer: stageAnswer, headers: true, output: true, cause: "first_output"},
		{name: "without reading", answer: stageAnswer, headers: true, output: true, close: true, cause: "first_output"},
		{name: "without reading, before the first output", answer: stageAnswer, headers: true, close: true, cause: "canceled"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, nil)
			s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
			other := open(t, s, upstreams, chat(words("the other one", 9000)))
			running, before := s.held(), s.fleet().total()
			st := newStage()
			for _, u := range upstreams {
				u.setAnswer(test.answer(st))
			}

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			type result struct {
				res *http.Response
				err error
			}
			answered := make(chan result, 1)
			go func() {
				res, err := send(ctx, s.sites[0], chatPath, chat(prompt), "X-Session-ID", "leaving")
				answered <- result{res, err}
			}()
			var home *upstream
			eventually(t, func() bool {
				for _, u := range upstreams {
					if strings.Contains(u.last().body, "the request") {
						home = u
					}
				}
				return home != nil
			}, func() string { return "no upstream has received the request" })
			var res *http.Response
			if test.headers {
				got := <-answered
				if got.err != nil {
					t.Fatal(got.err)
				}
				res = got.res
				defer res.Body.Close()
			}
			if test.output {
				close(st.output)
				eventually(t, func() bool { return s.fleet().total().RequestsWaiting == 1 },
					func() string { return "first output was not noticed" })
			}
			if test.close {
				res.Body.Close()
			} else {
				leave()
			}
			s.returnsTo(running)
			after := s.fleet()
			if got, want := since(before.Releases, after.total().Releases), map[string]int{test.cause: 1}; !maps.Equal(got, want) {
				t.Errorf("causes = %v, want %v", got, want)
			}
			if after.Sessions != 1 {
				t.Errorf("sessions = %d, want that of the client that left", after.Sessions)
			}
			if load := s.failedLoad(home); load != 0 {
				t.Errorf("failed load = %v for a client that left", load)
			}
			if got := turn(t, s, upstreams, conversation(prompt, "answer", "more"), "X-Session-ID", "leaving"); got != home {
				t.Error("session left its home though only its client left")
			}
			if got := s.fleet().total().Placements["pinned"]; got != 1 {
				t.Errorf("pinned placements = %d, want 1", got)
			}
			other.show(s)
			other.end()
			s.settled()
		})
	}
}

func stageAnswer(st *stage) http.HandlerFunc { return st.answer }

// failedLoad is the load that an upstream is charged for failed requests.
func (s *server) failedLoad(u *upstream) float64 {
	s.t.Helper()
	_, text := s.get("/llm_loadaware/fleets/default")
	var f struct {
		Upstreams []struct {
			Upstream   string
			FailedLoad float64 `json:"failed_load"`
		}
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		s.t.Fatal(err)
	}
	for _, status := range f.Upstreams {
		if status.Upstream == u.address() {
			return status.FailedLoad
		}
	}
	return 0
}

// A client that leaves while it sends the prompt ends as a broken body, which
// the transport reports as an error of the round trip. It is still the client
// that left: no upstream is to blame for it.
func TestClientLeavesWhileSending(t *testing.T) {
	for _, test := range []struct{ name, path, option string }{
		{"body that is read", chatPath, ""},
		{"body that passes", "/unknown", ""},
		{"with retries", chatPath, "lb_retries 2\nlb_retry_match `{rp.is_transport_error} && method('POST')`"},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newUpstream(t, answerAtOnce)
			s := start(t, fmt.Sprintf(twoSites, up.address(), fmt.Sprintf(proxyTo, up.address(), test.option)))
			other := open(t, s, []*upstream{up}, chat(words("the other one", 9000)))
			running, before := s.held(), s.fleet().total()

			conn, err := net.Dial("tcp", s.sites[1])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000\r\n\r\n{\"model\":\"m\",\"messages\":[", test.path, s.sites[1])
			conn.Close()

			eventually(t, func() bool { return sum(s.fleet().total().Placements) > sum(before.Placements) },
				func() string { return "the request was never placed" })
			s.returnsTo(running)
			if got := since(before.Releases, s.fleet().total().Releases); !maps.Equal(got, map[string]int{"canceled": 1}) {
				t.Errorf("causes = %v, want one canceled", got)
			}
			if load := s.failedLoad(up); load != 0 {
				t.Errorf("failed load = %v for a client that left", load)
			}
			other.show(s)
			other.end()
			s.settled()
		})
	}
}

// An upstream that dies in the middle of a response makes Caddy abort it with a
// panic.
func TestUpstreamDies(t *testing.T) {
	for _, test := range []struct {
		name, text string
		cause      string
	}{
		{"before the first output", eventStreamHeader, "error"},
		{"after the first output", eventStreamHeader + firstEventChunk, "first_output"},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, nil)
			s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
			other := open(t, s, upstreams, chat(words("the other one", 9000)))
			running, before := s.held(), s.fleet().total()
			die := make(chan struct{})
			for _, u := range upstreams {
				u.setAnswer(resetAfter(test.text, die))
			}
			res := begin(t, s.sites[0], chatPath, chat(words("the request", 4000)))
			if test.cause == "first_output" {
				if _, err := io.ReadFull(res.Body, make([]byte, 15)); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.fleet().total().RequestsInFlight; got != 2 {
				t.Errorf("in flight before = %d, want 2", got)
			}
			close(die)
			if _, err := io.ReadAll(res.Body); err == nil {
				t.Error("client saw a complete response")
			}
			s.returnsTo(running)
			if got, want := since(before.Releases, s.fleet().total().Releases), map[string]int{test.cause: 1}; !maps.Equal(got, want) {
				t.Errorf("causes = %v, want %v", got, want)
			}
			other.show(s)
			other.end()
			s.settled()
		})
	}
}

// A dynamic list drops an upstream and has it again while a request runs there.
// What that request gives back must come off the counters that it raised, and
// those are the ones in view.
func TestUpstreamLeavesAndReturns(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	name := t.Name()
	both := []string{upstreams[0].address(), upstreams[1].address()}
	changing.Store(name, both)
	defer changing.Delete(name)
	s := start(t, fmt.Sprintf("{site0} {\nllm_loadaware\nreverse_proxy {\ndynamic changing %s\nlb_policy llm_loadaware\n}\n}\n", name))

	waits := open(t, s, upstreams, chat(words("waits", 9000)))
	shown := open(t, s, upstreams, chat(words("shown", 1000)))
	if shown.at == waits.at {
		t.Fatal("both requests went to the same upstream")
	}
	shown.show(s)
	running := s.held()

	// without the upstream of the waiting request, without both, and back
	for _, list := range [][]string{{shown.at.address()}, {waits.at.address()}, nil, both, {both[1], both[0]}} {
		changing.Store(name, list)
		for _, u := range upstreams {
			u.setAnswer(answerAtOnce)
		}
		status := ended(t, s.sites[0], chat("hello"))
		if want := map[bool]int{true: 503, false: 200}[len(list) == 0]; status != want {
			t.Errorf("status with upstreams %v = %d, want %d", list, status, want)
		}
		s.returnsTo(running)
	}
	waits.show(s)
	waits.end()
	s.returnsTo(map[string]holds{shown.at.address(): {Requests: 1}})
	shown.end()
	s.settled()
}

const failingConfig = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			%s
		}
		transport http {
			keepalive off
		}
		%s
	}
}
`

// What a failed dispatch has taught is taken back: the session is where it was
// and counts its growth from the last turn that succeeded, and the index holds
// what it held.
func TestFailureTeachesNothing(t *testing.T) {
	failures := []struct {
		name    string
		answer  http.HandlerFunc
		retries string
	}{
		{"server error", fails(500), ""},
		{"client error", fails(400), ""},
		{"reset", func(w http.ResponseWriter, _ *http.Request) { reset(w) }, ""},
		{"headers and a reset", func(w http.ResponseWriter, _ *http.Request) {
			conn := hijack(w)
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetLinger(0)
			io.WriteString(conn, eventStreamHeader)
		}, ""},
		{"failed retry elsewhere", fails(503), retryOn503},
	}
	first, answer, question := words("first", 4000), words("answer", 50), words("question", 8000)
	for _, index := range []struct{ name, option string }{{"index on", ""}, {"index off", "prefix_index off"}} {
		for _, failure := range failures {
			t.Run(index.name+", "+failure.name, func(t *testing.T) {
				upstreams := newUpstreams(t, 2, nil)
				s := start(t, fmt.Sprintf(failingConfig, addresses(upstreams), index.option, failure.retries))
				home := turn(t, s, upstreams, chat(first), "X-Session-ID", "s")
				before := s.fleet()

				for _, u := range upstreams {
					u.setAnswer(failure.answer)
				}
				if status := ended(t, s.sites[0], conversation(first, answer, question), "X-Session-ID", "s"); status != 200 && status < 400 {
					t.Errorf("status = %d, want a failure", status)
				}
				// a session that never had a successful turn is not remembered
				ended(t, s.sites[0], chat(words("unknown", 3000)), "X-Session-ID", "new")
				s.settled()
				after := s.fleet()
				if after.Sessions != 1 {
					t.Errorf("sessions = %d, want 1", after.Sessions)
				}
				for _, u := range upstreams {
					got, want := after.of(u), before.of(u)
					if got.Sessions != want.Sessions || got.PrefixBlocks != want.PrefixBlocks {
						t.Errorf("upstream has %d sessions and %d blocks, want %d and %d as before",
							got.Sessions, got.PrefixBlocks, want.Sessions, want.PrefixBlocks)
					}
				}

				// elsewhere, or with what the failed turn left, it would count
				// other than its growth by 50 and 500
				next := open(t, s, upstreams, conversation(first, answer, words("other question", 500)), "X-Session-ID", "s")
				if next.at != home {
					t.Error("next turn left the home of the last successful one")
				}
				if got := s.fleet().of(home).PrefillTokens; got < 550 || got > 550+256+50 {
					t.Errorf("prefill tokens of the next turn = %d, want its growth of 550", got)
				}
				if got := since(after.total().Placements, s.fleet().total().Placements); !maps.Equal(got, map[string]int{"pinned": 1}) {
					t.Errorf("placements of the next turn = %v, want one pinned", got)
				}
				next.show(s)
				next.end()
				s.settled()
			})
		}
	}
}

// The engine that refuses a prompt has cached nothing of it, and has evicted
// nothing for it. The index holds a quarter more than its capacity until it is
// known what reached the engine.
func TestRefusedPromptEvictsNothing(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	// room for 100 blocks
	s := start(t, fmt.Sprintf(failingConfig, up.address(), "kv_tokens 25600", ""))
	turn(t, s, []*upstream{up}, chat(words("cached", 90*256)))
	before := s.fleet().of(up).PrefixBlocks
	up.setAnswer(fails(400))
	wantStatus(t, ended(t, s.sites[0], chat(words("refused", 20*256))), 400)
	s.settled()
	if got := s.fleet().of(up).PrefixBlocks; got != before {
		t.Errorf("blocks = %d after a refused prompt, want %d as before", got, before)
	}
}

// A retry goes elsewhere even from the session's home, and a session whose turn
// succeeded elsewhere is at home there.
func TestRetryLeavesHome(t *testing.T) {
	upstreams := newUpstreams(t, 2, nil)
	s := start(t, fmt.Sprintf(failingConfig, addresses(upstreams), "", retryOn503))
	first := words("first", 40_000)
	home := turn(t, s, upstreams, chat(first), "X-Session-ID", "s")
	elsewhere := upstreams[0]
	if elsewhere == home {
		elsewhere = upstreams[1]
	}
	blocks := s.fleet().of(home).PrefixBlocks
	before := s.fleet().total()

	home.setAnswer(fails(503))
	elsewhere.setAnswer(answerAtOnce)
	received := counts(upstreams)
	body := conversation(first, "answer", "second")
	wantStatus(t, ended(t, s.sites[0], body, "X-Session-ID", "s"), 200)
	for i, u := range upstreams {
		if got := u.count() - received[i]; got != 1 {
			t.Errorf("upstream %d received the request %d times, want once", i, got)
		}
		if u.last().body != body {
			t.Errorf("upstream %d received %d bytes, want the whole body of %d", i, len(u.last().body), len(body))
		}
	}
	after := s.fleet()
	if got := since(before.Placements, after.total().Placements); !maps.Equal(got, map[string]int{"pinned": 1, "moved_unavailable": 1}) {
		t.Errorf("placements = %v, want one pinned and one moved away", got)
	}
	if got := since(before.Releases, after.total().Releases); !maps.Equal(got, map[string]int{"retried": 1, "first_output": 1}) {
		t.Errorf("causes = %v, want one retried and one first output", got)
	}
	if got := after.of(home); got.Sessions != 0 || got.PrefixBlocks != blocks {
		t.Errorf("home that failed has %d sessions and %d blocks, want none and %d", got.Sessions, got.PrefixBlocks, blocks)
	}
	if got := turn(t, s, upstreams, conversation(first, "answer", "second", "answer", "third"), "X-Session-ID", "s"); got != elsewhere {
		t.Error("session went back to the home that had failed")
	}
	s.settled()
}

// A response route that proxies an error status again is a fallback: the first
// upstream has cached nothing, and is no home.
func TestFallbackByResponseRoute(t *testing.T) {
	first, second := newUpstream(t, fails(503)), newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf("{site0} {\n"+proxyTo+"}\n", first.address(), fmt.Sprintf(`
		@down status 503
		handle_response @down {
			reverse_proxy %s {
				lb_policy llm_loadaware
			}
		}
	`, second.address())))
	body := chat(words("the request", 20_000))
	wantStatus(t, ended(t, s.sites[0], body, "X-Session-ID", "s"), 200)
	s.settled()
	if second.last().body != body {
		t.Errorf("fallback received %d bytes, want the whole body of %d", len(second.last().body), len(body))
	}
	f := s.fleet()
	if got := f.of(first); got.Sessions != 0 || got.PrefixBlocks != 0 || got.Releases["error"] != 1 {
		t.Errorf("upstream that failed: %+v, want no session, no blocks and one error", got)
	}
	if got := f.of(second); got.Sessions != 1 || got.PrefixBlocks == 0 || got.Releases["first_output"] != 1 {
		t.Errorf("upstream that answered: %+v, want the session, blocks and one first output", got)
	}
	if s.failedLoad(first) == 0 {
		t.Error("upstream that failed has no load of its failure")
	}
}
