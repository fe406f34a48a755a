// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// newStatusHandler is a handler of the test's fleet. It goes with the test.
func newStatusHandler(t *testing.T) *StatusHandler {
	t.Helper()
	h := &StatusHandler{Fleet: t.Name()}
	h.begin()
	t.Cleanup(func() {
		if err := h.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// askStatus sends a request to the handler.
func askStatus(h *StatusHandler, method, target string, header ...string) (*httptest.ResponseRecorder, error) {
	r := httptest.NewRequest(method, target, http.NoBody)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	recorder := httptest.NewRecorder()
	return recorder, h.ServeHTTP(recorder, r, nil)
}

// The page comes from every path, and its files from the same with their queries.
func TestStatusFiles(t *testing.T) {
	h := newStatusHandler(t)
	for _, test := range []struct{ query, kind, text string }{
		{"", "text/html; charset=utf-8", "<!doctype html>"},
		{"?", "text/html; charset=utf-8", "<!doctype html>"},
		{"?something=else", "text/html; charset=utf-8", "<!doctype html>"},
		{"?page.css", "text/css; charset=utf-8", "color-scheme: light dark"},
		{"?page.js", "text/javascript; charset=utf-8", "new EventSource"},
		{"?page.js=", "text/javascript; charset=utf-8", "new EventSource"},
		{"?icon.svg", "image/svg+xml", "<svg "},
	} {
		for _, path := range []string{"/", "/status", "/status/", "/a/b/page.css"} {
			got, err := askStatus(h, http.MethodGet, path+test.query)
			if err != nil || got.Code != http.StatusOK || got.Header().Get("Content-Type") != test.kind || !strings.Contains(got.Body.String(), test.text) {
				t.Errorf("GET %s%s = %d, %v, %s, want %s with %q", path, test.query, got.Code, err, got.Header().Get("Content-Type"), test.kind, test.text)
			}
			tag := got.Header().Get("ETag")
			again, err := askStatus(h, http.MethodGet, path+test.query, "If-None-Match", tag)
			if err != nil || again.Code != http.StatusNotModified || tag == "" {
				t.Errorf("GET %s%s with tag %s = %d, %v, want 304", path, test.query, tag, again.Code, err)
			}
			head, err := askStatus(h, http.MethodHead, path+test.query)
			if err != nil || head.Code != http.StatusOK || head.Body.Len() > 0 || head.Header().Get("Content-Length") != got.Header().Get("Content-Length") {
				t.Errorf("HEAD %s%s = %d, %v, %v with %d bytes, want the header of GET alone", path, test.query, head.Code, err, head.Header(), head.Body.Len())
			}
		}
	}
}

func TestStatusMethods(t *testing.T) {
	h := newStatusHandler(t)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		for _, target := range []string{"/", "/?events"} {
			got, err := askStatus(h, method, target)
			var failure caddyhttp.HandlerError
			if !errors.As(err, &failure) || failure.StatusCode != http.StatusMethodNotAllowed || got.Header().Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s = %v, Allow %q, want 405 and GET, HEAD", method, target, err, got.Header().Get("Allow"))
			}
		}
	}
}

// The browser runs nothing but the page's own files, from the page's own address.
func TestStatusPageIsGuarded(t *testing.T) {
	h := newStatusHandler(t)
	for _, target := range []string{"/", "/?page.js", "/?page.css"} {
		got, err := askStatus(h, http.MethodGet, target)
		if err != nil {
			t.Fatal(err)
		}
		policy := got.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: Content-Security-Policy %q has no %s", target, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
			t.Errorf("%s: Content-Security-Policy %q lets more than the page in", target, policy)
		}
		if got.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: types may be guessed", target)
		}
	}
	page := string(statusIndex.text)
	for _, inline := range []string{`<script>`, `<style`, ` style="`, ` on\w+="`, `javascript:`} {
		if found := regexp.MustCompile(inline).FindString(page); found != "" {
			t.Errorf("the page has %s, which its policy does not let run", found)
		}
	}
	asked := 0
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		asked++
		name, relative := strings.CutPrefix(m[1], "?")
		known := false
		for _, f := range statusFiles {
			known = known || f.name == name
		}
		if !relative || !known {
			t.Errorf("the page asks for %s, want a query that names one of its files", m[1])
		}
	}
	if asked != len(statusFiles) {
		t.Errorf("the page asks for %d files, want %d", asked, len(statusFiles))
	}
	for _, f := range append(statusFiles, statusIndex) {
		// the namespace of SVG is a name and not fetched
		text := strings.ReplaceAll(string(f.text), `xmlns="http://www.w3.org/2000/svg"`, "")
		if found := regexp.MustCompile(`https?://|url\(|@import|innerHTML`).FindString(text); found != "" {
			t.Errorf("%s has %s", f.name, found)
		}
	}
}

// What is wrong with a HEAD of the events is what would be with a GET.
func TestStatusEventsHead(t *testing.T) {
	h := newStatusHandler(t)
	got, err := askStatus(h, http.MethodHead, "/?events")
	if err != nil || got.Code != http.StatusOK || got.Header().Get("Content-Type") != "text/event-stream" || got.Body.Len() > 0 {
		t.Errorf("HEAD = %d, %v, %v with %d bytes, want the header of an event stream", got.Code, err, got.Header(), got.Body.Len())
	}
	h.MaxViewers = 0
	if got, err := askStatus(h, http.MethodHead, "/?events"); err != nil || got.Code != http.StatusServiceUnavailable {
		t.Errorf("HEAD with no room = %d, %v, want 503", got.Code, err)
	}
	if n := h.viewers.Load(); n != 0 {
		t.Errorf("%d viewers are counted, want none", n)
	}
}

// Over a real connection: as many as may watch do, one more is told so, and the
// room of one that leaves is free again. The end of the configuration ends all.
func TestStatusViewers(t *testing.T) {
	newFleet(t, "a")
	h := newStatusHandler(t)
	h.MaxViewers = 2
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.ServeHTTP(w, r, nil); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	watch := func() *http.Response {
		t.Helper()
		res, err := server.Client().Get(server.URL + "/status?events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	first, second := watch(), watch()
	if refused := watch(); refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" {
		t.Errorf("the third of two viewers got %s, Retry-After %q, want 503", refused.Status, refused.Header.Get("Retry-After"))
	}
	first.Body.Close()
	for third := watch(); ; third = watch() {
		if third.StatusCode == http.StatusOK {
			break
		}
		third.Body.Close()
	}
	body := bufio.NewReader(second.Body)
	begun, err := body.ReadString('{')
	if err != nil {
		t.Fatal(err)
	}
	h.end()
	rest, err := io.ReadAll(body)
	text := begun + string(rest)
	if err != nil || !strings.HasPrefix(text, eventsPreface+"data: {") || !strings.HasSuffix(text, "}\n\n") {
		t.Errorf("the events = %q, %v, want whole ones and a good end", text, err)
	}
	if res := watch(); res.StatusCode != http.StatusOK {
		t.Errorf("a viewer that comes too late got %s, want an empty stream", res.Status)
	}
}

func TestStatusHandlerCaddyfile(t *testing.T) {
	h := new(StatusHandler)
	input := "llm_loadaware_status blue {\ninterval 250ms\nmax_viewers 5\n}"
	if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(input)); err != nil {
		t.Fatal(err)
	}
	if h.Fleet != "blue" || h.Interval != 250e6 || h.MaxViewers != 5 {
		t.Errorf("%s = %+v", input, h)
	}
	for _, test := range []struct {
		h    *StatusHandler
		want string
	}{
		{&StatusHandler{}, ""},
		{&StatusHandler{Interval: minStatusInterval}, ""},
		{&StatusHandler{Interval: maxStatusInterval}, ""},
		{&StatusHandler{Interval: minStatusInterval - 1}, "interval must be from 100ms to 1m"},
		{&StatusHandler{Interval: maxStatusInterval + 1}, "interval must be from 100ms to 1m"},
		{&StatusHandler{Interval: -1}, "interval must be from 100ms to 1m"},
		{&StatusHandler{MaxViewers: -1}, "max_viewers must be at least 1"},
	} {
		interval, viewers := test.h.Interval, test.h.MaxViewers
		test.h.begin()
		err := test.h.Validate()
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("interval %d, max_viewers %d: Validate() = %v, want %q", interval, viewers, err, test.want)
		}
		for range 2 {
			if err := test.h.Cleanup(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := new(StatusHandler).Cleanup(); err != nil {
		t.Errorf("Cleanup() of a handler that was never provisioned = %v", err)
	}
	statusHubs.Range(func(key, _ any) bool {
		t.Errorf("hub %v is still in use", key)
		return true
	})
}
