// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"testing"
)

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
