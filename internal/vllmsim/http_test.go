// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// newTestHost starts a server that is 50 times faster than real time, unless the config says otherwise.
func newTestHost(t *testing.T, cfg ServerConfig) *Host {
	t.Helper()
	if cfg.Speed == 0 {
		cfg.Speed = 50
	}
	h, err := NewHost(NewServer(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// send makes a request whose context ends with the test, at the latest after 10 s.
func send(t *testing.T, h *Host, method, path, body string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, h.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err == nil {
		t.Cleanup(func() { _ = resp.Body.Close() })
	}
	return resp, err
}

func mustSend(t *testing.T, h *Host, method, path, body string) *http.Response {
	t.Helper()
	resp, err := send(t, h, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// call200 posts a body and returns the JSON answer.
func call200(t *testing.T, h *Host, path, body string) map[string]any {
	t.Helper()
	status, v := callJSON(t, h, http.MethodPost, path, body)
	if status != http.StatusOK {
		t.Fatalf("POST %s = %d %v", path, status, v)
	}
	return v
}

func callJSON(t *testing.T, h *Host, method, path, body string) (int, map[string]any) {
	t.Helper()
	resp := mustSend(t, h, method, path, body)
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		t.Fatalf("%s %s = %d, no JSON: %v", method, path, resp.StatusCode, err)
	}
	return resp.StatusCode, v
}

// at walks into a JSON value by keys and indexes.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("%v: %v is no object", path, v)
			}
			v = m[step]
		case int:
			list, ok := v.([]any)
			if !ok || step >= len(list) {
				t.Fatalf("%v: %v has no element %d", path, v, step)
			}
			v = list[step]
		}
	}
	return v
}

// event is one server-sent event.
type event struct {
	name, raw string
	data      map[string]any
}

// next reads one event; io.EOF ends a stream.
func next(in *bufio.Reader) (event, error) {
	var e event
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return e, nil
		}
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			e.name = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			e.raw = data
			_ = json.Unmarshal([]byte(data), &e.data) // [DONE] is no JSON
		}
	}
}

// stream posts a body and returns all events of the answer.
func stream(t *testing.T, h *Host, path, body string) []event {
	t.Helper()
	resp := mustSend(t, h, http.MethodPost, path, body)
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(got, "text/event-stream") {
		t.Fatalf("POST %s = %d %s", path, resp.StatusCode, got)
	}
	in := bufio.NewReader(resp.Body)
	var list []event
	for {
		e, err := next(in)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("reading event %d: %v", len(list), err)
		}
		list = append(list, e)
	}
}

// names joins the types of events.
func names(list []event) string {
	var b []string
	for _, e := range list {
		b = append(b, e.name)
	}
	return strings.Join(b, " ")
}

// eventually waits for a condition that another goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	for !ok() {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("timeout waiting until %s", what)
		}
	}
}
