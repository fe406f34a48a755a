// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// hanging is the address of an upstream that accepts connections and says
// nothing, and the number of those that it has accepted.
func hanging(t *testing.T) (address string, accepted func() int) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		for _, conn := range conns {
			conn.Close()
		}
	})
	return ln.Addr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(conns)
	}
}

const besideHanging = `
{site0} {
	llm_loadaware
	reverse_proxy %s %s {
		lb_policy llm_loadaware {
			metrics off
		}
		transport http {
			response_header_timeout %s
		}
		lb_retries 2
		lb_retry_match ` + "`{rp.is_transport_error} == true`" + `
	}
}
`

// One backend that hung made all of a router hang. The others go on while one
// says nothing, and the timeouts of the transport end the wait for it.
func TestCaseC37HangingUpstreamHoldsNobodyUp(t *testing.T) {
	t.Run("others go on", func(t *testing.T) {
		address, accepted := hanging(t)
		upstreams := newUpstreams(t, 2, answerAtOnce)
		s := start(t, fmt.Sprintf(besideHanging, address, addresses(upstreams), "1h"))
		// of three requests that tie one goes to the hanging upstream
		for i := 0; accepted() == 0; i++ {
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				ended(t, s.sites[0], chat(fmt.Sprint("first ", i)))
			}()
			eventually(t, func() bool {
				select {
				case <-answered:
					return true
				default:
					return accepted() > 0
				}
			}, func() string { return "request is neither answered nor at the hanging upstream" })
		}
		for i := range 20 {
			res, err := send(withPatience(t), s.sites[0], chatPath, chat(words(fmt.Sprint("next ", i), 500)))
			if err != nil {
				t.Fatalf("request %d beside a hanging upstream: %v", i, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			eventually(t, func() bool { return s.inFlight() == 1 },
				func() string { return "request is still counted after its end" })
		}
		if got := accepted(); got != 1 {
			t.Errorf("%d requests went to the hanging upstream, want the first", got)
		}
	})
	t.Run("timeout of the transport", func(t *testing.T) {
		address, accepted := hanging(t)
		up := newUpstream(t, answerAtOnce)
		s := start(t, fmt.Sprintf(besideHanging, address, up.address(), "50ms"))
		for i := 0; accepted() == 0; i++ {
			wantStatus(t, ended(t, s.sites[0], chat(words(fmt.Sprint("request ", i), 500))), http.StatusOK)
		}
		s.settled()
		if got := s.fleet().total().Releases["retried"]; got == 0 {
			t.Error("no request was retried")
		}
	})
}
