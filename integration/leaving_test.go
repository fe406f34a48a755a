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
	"testing"
)

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
	return s.failedLoadOf(u.address())
}

// failedLoadOf is failedLoad by the address.
func (s *server) failedLoadOf(address string) float64 {
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
		if status.Upstream == address {
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

// A router gave back what another phase of a request had taken, and its counts
// doubled within hours.
//
// An upstream that dies in the middle of a response makes Caddy abort it with a
// panic.
func TestCaseC23DeadUpstreamGivesAllBack(t *testing.T) {
	for _, test := range []struct {
		name, text string
		cause      string
	}{
		{"before the first byte", "", "error"},
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
			whole := make(chan bool)
			output := make(chan struct{})
			go func() {
				res, err := send(t.Context(), s.sites[0], chatPath, chat(words("the request", 4000)))
				if err == nil && test.cause == "first_output" {
					_, err = io.ReadFull(res.Body, make([]byte, 15))
				}
				close(output)
				if err == nil {
					defer res.Body.Close()
					_, err = io.ReadAll(res.Body)
				}
				whole <- err == nil && res.StatusCode == http.StatusOK
			}()
			eventually(t, func() bool { return total(counts(upstreams)) == 2 },
				func() string { return "no upstream has received the request" })
			if test.cause == "first_output" {
				<-output
			}
			if got := s.fleet().total().RequestsInFlight; got != 2 {
				t.Errorf("in flight before = %d, want 2", got)
			}
			close(die)
			if <-whole {
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
