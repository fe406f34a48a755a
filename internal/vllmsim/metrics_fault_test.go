// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHugeMetrics(t *testing.T) {
	h := newTestHost(t, ServerConfig{})
	h.Server().SetFault(Fault{Metrics: MetricsHuge})
	resp := mustSend(t, h, http.MethodGet, "/metrics", "")
	head := make([]byte, 64<<10)
	if _, err := io.ReadFull(resp.Body, head); err != nil || resp.StatusCode != 200 {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	if !strings.Contains(string(head), `vllm:num_requests_running{engine="0",model_name="sim-model"} 0`) {
		t.Error("the page does not begin with the metrics")
	}
	for line := range bytes.Lines(head[:bytes.LastIndexByte(head, '\n')+1]) {
		if !bytes.HasPrefix(line, []byte("# ")) && bytes.Count(line, []byte(" ")) != 1 {
			t.Fatalf("no series: %q", line)
		}
	}
	rest, err := io.Copy(io.Discard, resp.Body)
	if size := rest + int64(len(head)); err != nil || size < hugePage || size > hugePage+200 {
		t.Errorf("%d bytes, %v, want %d", size, err, hugePage)
	}
}

// thirdWrite counts writes and does something at the third.
type thirdWrite struct {
	done int
	do   func()
	err  error
}

func (w *thirdWrite) Write(p []byte) (int, error) {
	if w.done++; w.done < 3 {
		return len(p), nil
	}
	w.do()
	return len(p), w.err
}

func TestFillerEndsWithItsReader(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, w := range map[string]*thirdWrite{
		"failed write":    {do: func() {}, err: errors.New("gone")},
		"client has left": {do: cancel},
	} {
		within := t.Context()
		if w.err == nil {
			within = ctx
		}
		writeFiller(within, w, hugePage)
		if w.done != 3 {
			t.Errorf("%s: %d writes, want 3", name, w.done)
		}
	}
}

// TestMetricsDelayEnds waits an hour for /metrics, unless somebody leaves.
func TestMetricsDelayEnds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(s *Server, leave func())
		took time.Duration
		size bool // there is a page
	}{
		{"by itself", func(*Server, func()) {}, time.Hour, true},
		{"with the client", func(_ *Server, leave func()) { leave() }, 0, false},
		{"with the server", func(s *Server, _ func()) { s.Close() }, 0, false},
		{"with the process", func(s *Server, _ func()) { s.Restart() }, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(ServerConfig{})
				defer s.Close()
				s.SetFault(Fault{MetricsDelayMillis: 3_600_000})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				w := httptest.NewRecorder()
				ended := make(chan any, 1)
				begin := time.Now()
				go func() {
					defer func() { ended <- recover() }()
					s.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
				}()
				synctest.Wait()
				tc.end(s, leave)
				if cut := <-ended != nil; cut == tc.size || (w.Body.Len() > 0) != tc.size {
					t.Errorf("connection cut: %v, %d bytes", cut, w.Body.Len())
				}
				if took := time.Since(begin); took != tc.took {
					t.Errorf("took %v, want %v", took, tc.took)
				}
			})
		})
	}
}
