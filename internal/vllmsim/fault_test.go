// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStatusFaults(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	for _, tc := range []struct {
		fault  Fault
		status int
		after  string
	}{
		{Fault{Request: FaultStatus}, 503, ""},
		{Fault{Request: FaultStatus, Status: 500, DelayMillis: 1}, 500, ""},
		{Fault{Request: FaultStatus, Status: 429, RetryAfter: 7}, 429, "7"},
		{Fault{}, 200, ""},
	} {
		h.Server().SetFault(tc.fault)
		for path, body := range promptEndpoints {
			resp := mustSend(t, h, http.MethodPost, path, body)
			if after := resp.Header.Get("Retry-After"); resp.StatusCode != tc.status || after != tc.after {
				t.Errorf("%+v: POST %s = %d, Retry-After %q, want %d, %q", tc.fault, path, resp.StatusCode, after, tc.status, tc.after)
			}
		}
		if resp := mustSend(t, h, http.MethodGet, "/health", ""); resp.StatusCode != 200 {
			t.Errorf("%+v: GET /health = %d, want 200", tc.fault, resp.StatusCode)
		}
	}
}

func TestFaultTimes(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Request: FaultStatus, Times: 2, Slow: 2})
	for i, want := range []int{503, 503, 200} {
		if status, _ := callJSON(t, h, http.MethodPost, "/v1/completions", `{"prompt":"x"}`); status != want {
			t.Errorf("request %d = %d, want %d", i, status, want)
		}
	}
	if f := h.Server().Fault(); f.Slow != 2 {
		t.Errorf("Fault() = %+v, want the rest of it in force", f)
	}
}

func TestErrorEvent(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Request: FaultErrorEvent})
	list := stream(t, h, "/v1/chat/completions", promptEndpoints["/v1/chat/completions"])
	if len(list) != 2 || at(t, list[0].data, "error", "code") != 500.0 || list[1].raw != "[DONE]" {
		t.Errorf("stream %v, want an error and [DONE]", list)
	}
	if list := stream(t, h, "/v1/messages", promptEndpoints["/v1/messages"]); names(list) != "error" {
		t.Errorf("stream %v, want an error event", list)
	}
	if status, _ := callJSON(t, h, http.MethodPost, "/v1/completions", `{"prompt":"x"}`); status != 500 {
		t.Errorf("unstreamed = %d, want 500", status)
	}
}

func TestHangs(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	for _, tc := range []struct {
		fault   Fault
		path    string
		body    string
		headers bool
	}{
		{Fault{Request: FaultHangAfterHeaders}, "/v1/chat/completions", promptEndpoints["/v1/chat/completions"], true},
		{Fault{Request: FaultHangAfterHeaders}, "/v1/responses", promptEndpoints["/v1/responses"], true},
		{Fault{Request: FaultHangAfterHeaders}, "/v1/completions", `{"prompt":"x"}`, false},
		{Fault{Request: FaultHangBeforeHeaders}, "/v1/messages", promptEndpoints["/v1/messages"], false},
	} {
		h.Server().SetFault(tc.fault)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL()+tc.path, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if (err == nil) != tc.headers {
			t.Errorf("%+v %s: headers %v, want %v", tc.fault, tc.path, err, tc.headers)
		}
		if err == nil {
			if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v %s: read %d bytes, %v, want none in time", tc.fault, tc.path, n, err)
			}
			_ = resp.Body.Close()
		}
		cancel()
		if resp := mustSend(t, h, http.MethodGet, "/health", ""); resp.StatusCode != 200 {
			t.Errorf("GET /health = %d while requests hang", resp.StatusCode)
		}
	}
	eventually(t, "the hung requests are gone", func() bool { return h.Server().inFlight.Load() == 0 })

	// a restart lets go of those whose clients stay
	h.Server().SetFault(Fault{Request: FaultHangAfterHeaders})
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	h.Server().Restart()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream that hung ends well after a restart")
	}
}

func TestResets(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Request: FaultResetBeforeHeaders})
	if _, err := send(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"]); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("error %v, want a connection reset", err)
	}
	for path, body := range promptEndpoints {
		for _, after := range []int{0, 3} {
			h.Server().SetFault(Fault{Request: FaultResetMidStream, AfterEvents: after})
			resp := mustSend(t, h, http.MethodPost, path, body)
			in, got := bufio.NewReader(resp.Body), 0
			_, err := next(in)
			for ; err == nil; got++ {
				_, err = next(in)
			}
			if got != after || errors.Is(err, io.EOF) {
				t.Errorf("%s: %d events and %v, want %d and a reset", path, got, err, after)
			}
		}
	}
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", `{"prompt":"x"}`)
	if text, err := io.ReadAll(resp.Body); err == nil || len(text) == 0 {
		t.Errorf("unstreamed: %d bytes and %v, want a part and a reset", len(text), err)
	}
	eventually(t, "the engine is idle", func() bool { return idle(h) })
}

func TestSlowAndSleep(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Slow: 4})
	h.Server().WithEngine(func(e *Engine) {
		if got := e.duration(6000, 0).Round(time.Millisecond); got != 4*506*time.Millisecond {
			t.Errorf("step takes %v, want 2.024s", got)
		}
	})
	h.Server().SetFault(Fault{})
	call200(t, h, "/v1/completions", `{"prompt":"`+strings.Repeat("a long prompt ", 50)+`"}`)

	h.Server().SetFault(Fault{Sleep: true})
	if got := series(t, h)[`vllm:engine_sleep_state{sleep_state="awake",engine="0",model_name="sim-model"}`]; got != "0" {
		t.Errorf("awake = %s, want 0", got)
	}
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", `{"stream":true,"prompt":"`+strings.Repeat("a long prompt ", 50)+`"}`)
	h.Server().SetFault(Fault{})
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("a request that waited for the engine to wake up: %v", err)
	}
	if s := h.Server().Stats(); s.PrefixHits != 0 || s.Finished != 2 {
		t.Errorf("Stats() = %+v, want no hits after sleep", s)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	for _, tc := range []struct {
		body   string
		status int
		want   Fault
	}{
		{`{"request":"status","status":502,"times":3}`, 200, Fault{Request: FaultStatus, Status: 502, Times: 3}},
		{`{"request":"explode"}`, 400, Fault{Request: FaultStatus, Status: 502, Times: 3}},
		{`{"metrics":"explode"}`, 400, Fault{Request: FaultStatus, Status: 502, Times: 3}},
		{`{"reqest":"status"}`, 400, Fault{Request: FaultStatus, Status: 502, Times: 3}},
		{`{"slow":2.5,"metrics":"zeros","health":503}`, 200, Fault{Slow: 2.5, Metrics: MetricsZeros, Health: 503}},
		{`{}`, 200, Fault{}},
	} {
		status, _ := callJSON(t, h, http.MethodPost, "/sim/fault", tc.body)
		if got := h.Server().Fault(); status != tc.status || got != tc.want {
			t.Errorf("POST %s = %d, fault %+v, want %d, %+v", tc.body, status, got, tc.status, tc.want)
		}
	}
	h.Server().SetFault(Fault{Health: 503})
	if resp := mustSend(t, h, http.MethodGet, "/health", ""); resp.StatusCode != 503 {
		t.Errorf("GET /health = %d, want 503", resp.StatusCode)
	}
	if _, v := callJSON(t, h, http.MethodGet, "/sim/fault", ""); v["health"] != 503.0 {
		t.Errorf("GET /sim/fault = %v", v)
	}
}

func TestRestartCutsRequestsAndForgets(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
	v := call200(t, h, "/v1/responses", `{"input":"x"}`)
	before := series(t, h)["process_start_time_seconds"]
	h.Server().SetFault(Fault{Stall: true})
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	if status := mustSend(t, h, http.MethodPost, "/sim/restart", "").StatusCode; status != 200 {
		t.Errorf("POST /sim/restart = %d", status)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a request survives the restart")
	}
	h.Server().SetFault(Fault{})
	if s := h.Server().Stats(); s != (Stats{}) || !idle(h) {
		t.Errorf("Stats() = %+v after a restart, want zero", s)
	}
	if after := series(t, h)["process_start_time_seconds"]; after <= before {
		t.Errorf("start time %s after the restart, %s before", after, before)
	}
	if status, _ := callJSON(t, h, http.MethodGet, "/v1/responses/"+v["id"].(string), ""); status != 404 {
		t.Errorf("GET of a response from before the restart = %d, want 404", status)
	}
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
}

func TestHostRefusesConnections(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	addr := h.Addr()
	h.Server().SetFault(Fault{Stall: true})
	resp := mustSend(t, h, http.MethodPost, "/v1/completions", promptEndpoints["/v1/completions"])
	h.Stop()
	h.Stop()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream survives Stop")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing a stopped host: %v, want refused", err)
	}
	h.Server().SetFault(Fault{})
	if err := h.Start(); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(); err != nil || h.Addr() != addr {
		t.Errorf("second Start() = %v, address %s, want nil, %s", err, h.Addr(), addr)
	}
	call200(t, h, "/v1/completions", `{"prompt":"x"}`)
	h.Close()
	h.Close()
}
