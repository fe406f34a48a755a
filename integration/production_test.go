// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// production starts the production config of the examples, as it is shipped,
// with other addresses.
func production(t *testing.T, upstreams []*upstream) *server {
	t.Helper()
	return productionAt(t, addresses(upstreams))
}

// productionAt is production with the upstreams at these addresses.
func productionAt(t *testing.T, addresses string) *server {
	t.Helper()
	return start(t, productionConfig(t, addresses))
}

// productionConfig is the production config with the upstreams at these
// addresses.
func productionConfig(t *testing.T, addresses string) string {
	t.Helper()
	text, err := os.ReadFile("../examples/production/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.Replace(string(text), "llm.example.com", "{site0}", 1)
	config = strings.Replace(config, "http://localhost:9181", "{site2}", 1)
	const shipped = "vllm-0:8000 vllm-1:8000 vllm-2:8000"
	if !strings.Contains(config, shipped) {
		t.Fatalf("the config has no upstreams %s", shipped)
	}
	return strings.Replace(config, shipped, addresses, 1)
}

// What one upstream cannot do another one does, with the whole body; what is
// wrong with a request or went wrong in an engine is passed on once.
func TestProductionConfig(t *testing.T) {
	for _, test := range []struct {
		name     string
		fails    http.HandlerFunc
		attempts int
		again    int // how many more Go's transport makes on a kept-alive connection
		status   int
	}{
		{"503", fails(http.StatusServiceUnavailable), 2, 0, http.StatusOK},
		{"502", fails(http.StatusBadGateway), 2, 0, http.StatusOK},
		{"connection reset", func(w http.ResponseWriter, _ *http.Request) { reset(w) }, 2, 1, http.StatusOK},
		{"500", fails(http.StatusInternalServerError), 1, 0, http.StatusInternalServerError},
		{"400", fails(http.StatusBadRequest), 1, 0, http.StatusBadRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := production(t, upstreams)
			prompt := words("first turn", 2000)
			home := turn(t, s, upstreams, chat(prompt), "X-Session-ID", "s")
			before := total(counts(upstreams))

			home.setAnswer(test.fails)
			body := conversation(prompt, "answer", "more")
			status, text := exchange(t, s.sites[0], chatPath, body, "X-Session-ID", "s")
			if status != test.status {
				t.Errorf("status %d, want %d: %s", status, test.status, text)
			}
			if got := total(counts(upstreams)) - before; got < test.attempts || got > test.attempts+test.again {
				t.Errorf("attempts = %d, want %d and up to %d more", got, test.attempts, test.again)
			}
			for _, u := range upstreams {
				if got := u.last().body; u.count() > 0 && got != body && got != chat(prompt) {
					t.Errorf("an upstream received another body of %d bytes", len(got))
				}
			}
			s.settled()
		})
	}
}

func TestProductionConfigHidesTheRest(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := production(t, upstreams)
	for _, path := range []string{"/pause", "/metrics", "/invocations", "/"} {
		if status, _ := exchange(t, s.sites[0], path, "{}"); status != http.StatusNotFound {
			t.Errorf("POST %s: status %d, want 404", path, status)
		}
	}
	if got := total(counts(upstreams)); got != 0 {
		t.Errorf("upstreams received %d requests, want none", got)
	}
}

// The live page is there for operators on the machine, and for nobody else.
func TestProductionPage(t *testing.T) {
	s := production(t, newUpstreams(t, 3, answerAtOnce))
	if event, err := s.watchAt(s.sites[2], "/").next(); err != nil || len(event.Fleet.Upstreams) != 3 {
		t.Errorf("event = %+v, %v, want one with three upstreams", event, err)
	}
	for _, path := range []string{"/", "/?events", "/status", "/status/?events"} {
		if res, _ := exchangeAs(t, http.MethodGet, s.sites[0], path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s on the public site: status %d, want 404", path, res.StatusCode)
		}
	}
	text, err := os.ReadFile("../examples/production/Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	config, err := adapt(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(config, `"listen":["127.0.0.1:9181"]`) {
		t.Errorf("the page listens elsewhere than on loopback: %s", config)
	}
}
