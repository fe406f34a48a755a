// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// statusEvent is what an event of the status page says.
type statusEvent struct {
	Name       string
	Fleet      *fleetStatus
	Placements []struct{ Reason, Upstream, Model, Session string }
}

// viewer reads the events of a status page.
type viewer struct {
	t    *testing.T
	body *bufio.Reader
	said strings.Builder
}

// watch connects to the events at a path of the first site.
func (s *server) watch(path string) *viewer {
	s.t.Helper()
	return s.watchAt(s.sites[0], path)
}

func (s *server) watchAt(site, path string) *viewer {
	s.t.Helper()
	t := s.t.(*testing.T)
	res, err := sendAs(t.Context(), http.MethodGet, site, path+"?events", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("GET %s?events: status %d, %s, want an event stream", path, res.StatusCode, kind)
	}
	return &viewer{t: t, body: bufio.NewReader(res.Body)}
}

// next returns the next event, or io.EOF at the end of the stream.
func (v *viewer) next() (event statusEvent, err error) {
	v.t.Helper()
	for {
		line, err := v.body.ReadString('\n')
		if err != nil {
			return event, err
		}
		v.said.WriteString(line)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &event); err != nil {
				v.t.Fatalf("event %s: %v", data, err)
			}
			return event, nil
		}
	}
}

// until reads events until one is as wanted.
func (v *viewer) until(wanted func(e *statusEvent) bool) statusEvent {
	v.t.Helper()
	for {
		event, err := v.next()
		if err != nil {
			v.t.Fatalf("no event was as wanted: %v", err)
		}
		if wanted(&event) {
			return event
		}
	}
}

// The page works behind every prefix, stripped or not, and beside a proxy that
// takes everything.
func TestStatusPaths(t *testing.T) {
	const proxy = "reverse_proxy %s {\nlb_policy llm_loadaware\n}\n"
	for _, test := range []struct {
		name, site string
		paths      []string
	}{
		{"stripped prefix", "handle_path /status/* {\nllm_loadaware_status\n}\nhandle {\n" + proxy + "}\n", []string{"/status/", "/status/x"}},
		{"one path in a route", "route /status {\nllm_loadaware_status\n}\n" + proxy, []string{"/status"}},
		{"a matcher", "llm_loadaware_status /status*\n" + proxy, []string{"/status", "/status/"}},
		{"a handle with a prefix", "handle /a/b/* {\nllm_loadaware_status\n}\nhandle {\n" + proxy + "}\n", []string{"/a/b/", "/a/b/c"}},
		{"inside encode and the handler", "encode\nllm_loadaware\nllm_loadaware_status /status\n" + proxy, []string{"/status"}},
		{"a site of its own", "llm_loadaware_status\n}\n{site1} {\n" + proxy, []string{"/", "/anything"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			up := newUpstream(t, answerAtOnce)
			s := start(t, "{site0} {\n"+fmt.Sprintf(test.site, up.address())+"}\n")
			for _, path := range test.paths {
				res, page := exchangeAs(t, http.MethodGet, s.sites[0], path, "")
				if res.StatusCode != http.StatusOK || !strings.Contains(page, `href="?page.css"`) || res.Header.Get("Content-Security-Policy") == "" {
					t.Errorf("GET %s: status %d: %s, want the page", path, res.StatusCode, page)
				}
				if res, text := exchangeAs(t, http.MethodGet, s.sites[0], path+"?page.js", ""); res.StatusCode != http.StatusOK || !strings.Contains(text, "EventSource") {
					t.Errorf("GET %s?page.js: status %d: %s, want the script", path, res.StatusCode, text)
				}
				res, text := exchangeAs(t, http.MethodPost, s.sites[0], path, "x")
				if res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET, HEAD" {
					t.Errorf("POST %s: status %d: %s, want 405", path, res.StatusCode, text)
				}
				event, err := s.watch(path).next()
				if err != nil || event.Fleet == nil || len(event.Fleet.Upstreams) != 1 {
					t.Errorf("%s: event = %+v, %v, want one with the upstream", path, event, err)
				}
			}
			if status, _ := exchange(t, s.sites[0], "/v1/chat/completions", chat("hello")); strings.Contains(test.name, "its own") != (status == http.StatusMethodNotAllowed) {
				t.Errorf("POST to the API: status %d", status)
			}
		})
	}
}

// Who watches sees requests come, run and end, and nothing of what they say.
func TestStatusShowsPlacements(t *testing.T) {
	release := make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		answerAtOnce(w, r)
	})
	s := start(t, "{site0} {\nllm_loadaware\nllm_loadaware_status /status {\ninterval 100ms\n}\n"+
		fmt.Sprintf("reverse_proxy %s {\nlb_policy llm_loadaware\n}\n}\n", up.address()))
	v := s.watch("/status")
	ended := make(chan int)
	go func() {
		status, _ := exchange(t, s.sites[0], "/v1/chat/completions", chat("SECRET WORDS "+words("x", 400)), "X-Session-ID", "SECRET SESSION")
		ended <- status
	}()
	e := v.until(func(e *statusEvent) bool { return e.Fleet.total().RequestsWaiting == 1 })
	if e.Fleet.total().PrefillTokens < 300 || e.Fleet.Sessions != 1 || len(e.Placements) != 1 {
		t.Errorf("event = %+v, want a session with a long prompt", e)
	}
	close(release)
	if status := <-ended; status != http.StatusOK {
		t.Errorf("status %d, want 200", status)
	}
	e = v.until(func(e *statusEvent) bool { return e.Fleet.total().RequestsInFlight == 0 })
	if p := e.Placements; len(p) != 1 || p[0].Reason != "new" || p[0].Upstream != up.address() || len(p[0].Session) != 8 {
		t.Errorf("placements = %+v, want a new session on %s", p, up.address())
	}
	if strings.Contains(v.said.String(), "SECRET") {
		t.Errorf("the events say what the request says: %s", v.said.String())
	}
}

// A reload ends the streams well, and the page finds the next configuration where
// the last one was; a fleet that is gone is said to be.
func TestStatusReload(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	site := "{site0} {\nllm_loadaware_status /status %s {\ninterval 100ms\n}\n}\n{site1} {\n" + fmt.Sprintf("reverse_proxy %s {\nlb_policy llm_loadaware\n}\n}\n", up.address())
	s := start(t, fmt.Sprintf(site, "default"))
	for _, fleet := range []string{"default", "other", "default"} {
		v := s.watch("/status")
		if _, err := v.next(); err != nil {
			t.Fatal(err)
		}
		if err := s.reload(fmt.Sprintf(site, fleet), "Cache-Control", "must-revalidate"); err != nil {
			t.Fatal(err)
		}
		v.end()
		event, err := s.watch("/status").next()
		if err != nil || event.Name != fleet || (event.Fleet == nil) != (fleet == "other") {
			t.Errorf("event after the reload = %+v, %v, want one of %s", event, err, fleet)
		}
	}
}

// Events come as they are made, and end well with the configuration, in every
// protocol.
func TestStatusProtocols(t *testing.T) {
	const page = "llm_loadaware_status %s {\ninterval 100ms\n}\n"
	cert, key, trusted := certificate(t)
	for _, sp := range speakers {
		t.Run(sp.name, func(t *testing.T) {
			s := newServer(t)
			config := func(fleet string) string {
				site := fmt.Sprintf(page, fleet)
				return fmt.Sprintf("{site0} {\n%s}\nhttps://%s {\ntls %s %s\n%s}\n", site, s.sites[1], cert, key, site)
			}
			s.run(s.adapt(config("first")))
			base := "http://" + s.sites[0]
			if sp.tls {
				base = "https://" + s.sites[1]
			}
			r, err := http.NewRequestWithContext(withPatience(t), http.MethodGet, base+"/?events", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := sp.transport(t, trusted).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.ProtoMajor != sp.major {
				t.Fatalf("answered with %s", res.Proto)
			}
			v := &viewer{t: t, body: bufio.NewReader(res.Body)}
			for range 3 {
				if event, err := v.next(); err != nil || event.Name != "first" {
					t.Fatalf("event = %+v, %v, want one of first", event, err)
				}
			}
			if err := s.reload(config("second")); err != nil {
				t.Fatal(err)
			}
			v.end()
		})
	}
}

// A process that ends waits for its requests, for ever where there is no grace
// period. Those who watch do not keep it from that.
func TestStatusDoesNotHoldUpTheEnd(t *testing.T) {
	s := newServer(t)
	var config map[string]any
	if err := json.Unmarshal(s.adapt("{site0} {\nllm_loadaware_status\n}\n"), &config); err != nil {
		t.Fatal(err)
	}
	delete(config["apps"].(map[string]any)["http"].(map[string]any), "grace_period")
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	p := s.spawnJSON(t, text)
	v := s.watch("/")
	if _, err := v.next(); err != nil {
		t.Fatal(err)
	}
	p.end(syscall.SIGTERM)
	v.end()
}

// end reads events to the end of the stream, which has to be a good one.
func (v *viewer) end() {
	v.t.Helper()
	for {
		if _, err := v.next(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			v.t.Fatalf("the stream ended with %v, want a good end", err)
		}
	}
}
