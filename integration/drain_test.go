// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const drainPath = "/llm_loadaware/fleets/default/drain?upstream="

// drain drains an upstream, or ends that with DELETE, and checks that both views
// show it.
func (s *server) drain(method string, u *upstream) {
	s.t.Helper()
	if status, text := s.ask(method, drainPath+u.address()); status != http.StatusOK || text != "" {
		s.t.Fatalf("%s drain: status %d: %q, want 200 and nothing", method, status, text)
	}
	s.showsState(u, map[string]string{http.MethodPost: "drained", http.MethodDelete: "available"}[method])
}

// showsState checks the state of an upstream in the admin view and the metrics.
func (s *server) showsState(u *upstream, state string) {
	s.t.Helper()
	if got := s.fleet().of(u).State; got != state {
		s.t.Errorf("state in the admin view = %q, want %q", got, state)
	}
	_, text := s.get("/metrics")
	for _, name := range []string{"available", "full", "cooling_down", "suspect", "asleep", "drained"} {
		value := 0
		if name == state {
			value = 1
		}
		line := fmt.Sprintf("caddy_llm_loadaware_upstream_state{fleet=\"default\",state=%q,upstream=%q} %d\n", name, u.address(), value)
		if !strings.Contains(text, line) {
			s.t.Errorf("/metrics has no %s", line)
		}
	}
}

// An upstream is taken out of service without a client that notices: what runs
// there goes on, and everything else goes elsewhere, over a reload too.
func TestDrain(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	prompt := words("a conversation", 4000)
	session := []string{"X-Session-ID", "a session"}
	home := turn(t, s, upstreams, conversation(prompt), session...)
	if got := turn(t, s, upstreams, conversation(prompt, "answer", "more"), session...); got != home {
		t.Fatal("the session did not stay at its home")
	}
	running := open(t, s, upstreams, conversation(prompt, "answer", "more", "answer", "long"), session...)
	if running.at != home {
		t.Fatal("the stream is not at the session's home")
	}

	s.drain(http.MethodPost, home)
	s.drain(http.MethodPost, home)
	for i := range 6 {
		header := []string{"X-Session-ID", fmt.Sprint("new ", i)}
		if turn(t, s, upstreams, chat(words(fmt.Sprint("new ", i), 3000)), header...) == home {
			t.Errorf("new session %d went to the drained upstream", i)
		}
		if turn(t, s, upstreams, chat(prompt)) == home {
			t.Errorf("request %d without a session went to the drained upstream, which has its prefix cached", i)
		}
	}
	if turn(t, s, upstreams, conversation(prompt, "answer", "another"), session...) == home {
		t.Error("the session stayed at its drained home")
	}
	running.show(s)
	running.end()

	if err := s.reload(fmt.Sprintf(oneSite, addresses(upstreams)), "Cache-Control", "must-revalidate"); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	s.showsState(home, "drained")
	if turn(t, s, upstreams, chat(words("after the reload", 3000))) == home {
		t.Error("a request after the reload went to the drained upstream")
	}

	s.drain(http.MethodDelete, home)
	s.drain(http.MethodDelete, home)
	if turn(t, s, upstreams, conversation(prompt, "answer", "another", "answer", "last"), session...) == home {
		t.Error("the session went back to its old home")
	}
	busy := open(t, s, upstreams, chat(words("busy", 3000)))
	next := open(t, s, upstreams, chat(words("next", 3000)))
	if busy.at == next.at {
		t.Error("the upstream is not chosen again")
	}
	for _, st := range []*stream{busy, next} {
		st.show(s)
		st.end()
	}
	s.settled()
}

// Nothing shuts the service down: with every upstream drained they are chosen
// from as before.
func TestDrainAll(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	home := turn(t, s, upstreams, chat(words("hello", 3000)), "X-Session-ID", "s")
	for _, u := range upstreams {
		s.drain(http.MethodPost, u)
	}
	if got := turn(t, s, upstreams, chat(words("hello", 3000)), "X-Session-ID", "s"); got != home {
		t.Error("the session left its home for another drained upstream")
	}
	busy := open(t, s, upstreams, chat(words("busy", 3000)))
	if turn(t, s, upstreams, chat(words("next", 3000))) == busy.at {
		t.Error("a request went to the busier of two drained upstreams")
	}
	busy.show(s)
	busy.end()
	s.settled()
}

func TestDrainRefuses(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(oneSite, up.address()))
	for _, test := range []struct {
		method, path string
		status       int
		text         string
	}{
		{http.MethodPost, "/llm_loadaware/fleets/other/drain?upstream=" + up.address(), 404, "fleet not found: other"},
		{http.MethodDelete, "/llm_loadaware/fleets/other/drain?upstream=" + up.address(), 404, "fleet not found: other"},
		{http.MethodPost, drainPath + "127.0.0.1:1", 404, "upstream not found: 127.0.0.1:1"},
		{http.MethodDelete, drainPath + "127.0.0.1:1", 404, "upstream not found: 127.0.0.1:1"},
		{http.MethodPost, drainPath, 400, "upstream is missing"},
		{http.MethodDelete, "/llm_loadaware/fleets/default/drain", 400, "upstream is missing"},
		{http.MethodGet, drainPath + up.address(), 405, "method not allowed"},
		{http.MethodPut, drainPath + up.address(), 405, "method not allowed"},
		{http.MethodPatch, drainPath + up.address(), 405, "method not allowed"},
	} {
		if status, text := s.ask(test.method, test.path); status != test.status || !strings.Contains(text, test.text) {
			t.Errorf("%s %s: status %d: %s, want %d: %s", test.method, test.path, status, text, test.status, test.text)
		}
	}
	s.showsState(up, "available")
}
