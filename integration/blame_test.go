// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// An engine that sends its headers and dies has no load and would draw every
// request, so it keeps that of each one for a while.
func TestStreamsThatBreakOffAreBlamed(t *testing.T) {
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush(w)
		panic(http.ErrAbortHandler)
	})
	s := start(t, fmt.Sprintf(burstConfig, up.address()))
	res, err := send(t.Context(), s.sites[0], chatPath, chat("hello"))
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if err == nil {
		t.Fatal("the response did not break off")
	}
	s.settled()
	if got := s.failedLoad(up); got < 0.5 {
		t.Errorf("failed load = %v after a stream that broke off, want about 1", got)
	}
}

// What another proxy was answered before says nothing of this dispatch.
func TestStatusOfAnotherProxyBlamesNobody(t *testing.T) {
	auth := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	up := newUpstream(t, answerAtOnce)
	s := newServer(t)
	s.run(s.adapt(fmt.Sprintf(`
{site0} {
	llm_loadaware
	forward_auth %s {
		uri /auth
	}
	reverse_proxy %s {dead} {
		lb_policy llm_loadaware
		lb_retries 1
	}
}
`, auth.address(), up.address())))
	for range 4 { // one of two requests goes to the dead upstream first
		if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	s.settled()
	load := s.failedLoadOf(s.dead)
	if load < 0.5 {
		t.Errorf("failed load of an upstream that refuses connections = %v, want about 1", load)
	}
}

// A client that sends nonsense must not make an upstream look loaded.
func TestBrokenChunksBlameNobody(t *testing.T) {
	for _, path := range []string{chatPath, "/v1/unknown"} {
		t.Run(path, func(t *testing.T) {
			up := newUpstream(t, answerAtOnce)
			s := start(t, fmt.Sprintf(burstConfig, up.address()))
			conn, err := net.Dial("tcp", s.sites[0])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
				"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\n{\"mod\r\nnonsense\r\n", path, s.sites[0])
			answer, _ := io.ReadAll(conn)
			if !strings.HasPrefix(string(answer), "HTTP/1.1 ") {
				t.Errorf("answer %q, want some status", answer)
			}
			s.settled()
			if got := s.failedLoad(up); got != 0 {
				t.Errorf("failed load = %v after a client's broken body, want 0", got)
			}
		})
	}
}
