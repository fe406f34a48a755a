// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestAdminTransport ends the first connections after they were written to, and
// sends again what can be sent whole.
func TestAdminTransport(t *testing.T) {
	for _, test := range []struct {
		name   string
		reset  bool
		method string
		body   io.Reader
		text   string
		sent   int32
	}{
		{"end", false, http.MethodPost, strings.NewReader("config"), "config", 3},
		{"reset", true, http.MethodPost, strings.NewReader("config"), "config", 3},
		{"no body", false, http.MethodDelete, nil, "", 3},
		{"body that is gone", false, http.MethodPost, io.MultiReader(strings.NewReader("config")), "", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sent atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				if sent.Add(1) > 2 {
					w.Write(text)
					return
				}
				conn, _, _ := w.(http.Hijacker).Hijack()
				if test.reset {
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				conn.Close()
			}))
			defer s.Close()
			req, err := http.NewRequest(test.method, s.URL, test.body)
			if err != nil {
				t.Fatal(err)
			}
			text := ""
			res, err := adminClient.Do(req)
			if err == nil {
				all, _ := io.ReadAll(res.Body)
				res.Body.Close()
				text = string(all)
			}
			if (err == nil) != (test.sent > 1) || text != test.text || sent.Load() != test.sent {
				t.Errorf("%q, %v after %d requests; want %q after %d", text, err, sent.Load(), test.text, test.sent)
			}
			if test.sent == 1 && !errors.Is(err, io.EOF) {
				t.Errorf("%v, want what has ended the first", err)
			}
		})
	}
}
