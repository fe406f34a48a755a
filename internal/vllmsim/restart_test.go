// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestHostRestart restarts a host that has a stream, a request without an answer and an idle connection.
func TestHostRestart(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	addr, prompt := h.Addr(), strings.Repeat("word", 100)
	call200(t, h, "/v1/completions", `{"prompt":"`+prompt+`"}`)
	before := series(t, h)["process_start_time_seconds"]

	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	_, _ = io.WriteString(idle, "GET /health HTTP/1.1\r\nHost: sim\r\n\r\n")
	answers := bufio.NewReader(idle)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET /health: %v", err)
	}

	h.Server().SetFault(Fault{Stall: true})
	streamed := mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	unstreamed := make(chan error, 1)
	go func() {
		resp, err := http.Post(h.URL()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x"}`))
		if err == nil {
			_ = resp.Body.Close()
		}
		unstreamed <- err
	}()
	eventually(t, "both have arrived", func() bool { return h.Server().inFlight.Load() == 2 })
	h.Restart()

	_, err = io.ReadAll(streamed.Body)
	for name, err := range map[string]error{
		"stream": err, "unstreamed": <-unstreamed, "idle connection": readError(answers),
	} {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v, want a reset", name, err)
		}
	}
	http.DefaultClient.CloseIdleConnections() // which it may not know to be gone
	h.Server().SetFault(Fault{})
	if s := h.Server().Stats(); s != (Stats{}) || h.Addr() != addr {
		t.Errorf("Stats() = %+v at %s after the restart", s, h.Addr())
	}
	if after := series(t, h)["process_start_time_seconds"]; after <= before {
		t.Errorf("start time %s after the restart, %s before", after, before)
	}
	call200(t, h, "/v1/completions", `{"prompt":"`+prompt+`"}`)
	if s := h.Server().Stats(); s.PrefixHits != 0 || s.Finished != 1 {
		t.Errorf("Stats() = %+v, want one request without hits", s)
	}
}

func readError(r io.Reader) error {
	_, err := r.Read(make([]byte, 1))
	return err
}

// TestStoppedHostRestarts restarts what refuses connections, which it goes on to do.
func TestStoppedHostRestarts(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
	h.Stop()
	http.DefaultClient.CloseIdleConnections() // which it may not know to be gone
	h.Restart()
	if _, err := net.Dial("tcp", h.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing: %v, want refused", err)
	}
	if s := h.Server().Stats(); s != (Stats{}) {
		t.Errorf("Stats() = %+v, want zero", s)
	}
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
}
