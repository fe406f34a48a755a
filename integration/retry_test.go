// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// die ends an upstream as a crash does: what is open is cut, and what comes is
// refused.
func (u *upstream) die() {
	u.Listener.Close()
	u.CloseClientConnections()
}

// onAddress returns what the fleet knows of an address.
func (f fleetStatus) onAddress(address string) upstreamStatus {
	for _, status := range f.Upstreams {
		if status.Upstream == address {
			return status
		}
	}
	return upstreamStatus{}
}

// A wish of others: a new try within the time that a user waits.
//
// A refused connection is no reason to wait, nor for the client to know. The
// config has nothing that waits: each dispatch to the dead address is followed
// by one elsewhere, and after a few of them there are no more.
func TestCaseC38RefusedConnectionIsAnsweredElsewhere(t *testing.T) {
	const requests = 60
	upstreams := newUpstreams(t, 2, answerAtOnce)
	dead := freeAddress(t)
	s := productionAt(t, dead+" "+addresses(upstreams))
	for i := range requests {
		body := chat(words(fmt.Sprint("request ", i), 500))
		if status, text := exchange(t, s.sites[0], chatPath, body); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	s.settled()
	if got := total(counts(upstreams)); got != requests {
		t.Errorf("upstreams that are alive received %d requests, want each of %d once", got, requests)
	}
	got := s.fleet().onAddress(dead)
	if n := sum(got.Releases); n == 0 || n > 10 || got.Releases["retried"] != n {
		t.Errorf("releases of the dead address = %v, want a few, all retried", got.Releases)
	}
}

// Every retry of a session went to the same dead worker until there were no more.
//
// A session whose home has died goes on elsewhere with its second attempt, and
// stays there.
func TestCaseC40SessionLeavesDeadHome(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := production(t, upstreams)
	first := words("first", 4000)
	home := turn(t, s, upstreams, chat(first), "X-Session-ID", "s")
	before := s.fleet().total()
	received := total(counts(upstreams))
	home.die()

	second := conversation(first, "answer", "second")
	wantStatus(t, ended(t, s.sites[0], second, "X-Session-ID", "s"), http.StatusOK)
	s.settled()
	if got := total(counts(upstreams)) - received; got != 1 {
		t.Errorf("upstreams received the turn %d times, want once", got)
	}
	after := s.fleet().total()
	if got := since(before.Placements, after.Placements); !maps.Equal(got, map[string]int{"pinned": 1, "moved_unavailable": 1}) {
		t.Errorf("placements = %v, want one at home and one elsewhere", got)
	}
	wantStatus(t, ended(t, s.sites[0], conversation(first, "answer", "second", "answer", "third"), "X-Session-ID", "s"), http.StatusOK)
	if got := since(after.Placements, s.fleet().total().Placements); !maps.Equal(got, map[string]int{"pinned": 1}) {
		t.Errorf("placements of the next turn = %v, want one at the new home", got)
	}
}

// retryEverything is the production config's way to retry, for any status.
const retryEverything = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
		lb_retries 4
		lb_retry_match ` + "`method('POST') && ({rp.is_transport_error} == true || {rp.status_code} >= 500)`" + `
	}
}
`

// A request that makes an engine fail must not go through the whole fleet. One
// that engines refuse, or cannot be reached for, may.
func TestPoisonReachesTwoUpstreams(t *testing.T) {
	for _, test := range []struct {
		name    string
		fails   func(u *upstream) http.HandlerFunc
		reached int
		status  int
	}{
		{"crash", func(u *upstream) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				u.Listener.Close()
				reset(w)
			}
		}, 2, http.StatusBadGateway},
		{"reset", func(*upstream) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) { reset(w) }
		}, 2, http.StatusBadGateway},
		{"500", func(*upstream) http.HandlerFunc { return fails(500) }, 2, 500},
		{"502", func(*upstream) http.HandlerFunc { return fails(502) }, 2, 502},
		{"504", func(*upstream) http.HandlerFunc { return fails(504) }, 2, 504},
		{"503", func(*upstream) http.HandlerFunc { return fails(503) }, 4, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 4, answerAtOnce)
			s := start(t, fmt.Sprintf(retryEverything, addresses(upstreams)))
			// connections are kept alive, as in a fleet at work
			for i := range 8 {
				wantStatus(t, ended(t, s.sites[0], chat(words(fmt.Sprint("before ", i), 300))), http.StatusOK)
			}
			before := counts(upstreams)
			for _, u := range upstreams {
				u.setAnswer(test.fails(u))
			}
			wantStatus(t, ended(t, s.sites[0], chat(words("poison", 5000))), test.status)
			reached := 0
			for i, n := range counts(upstreams) {
				if n > before[i] {
					reached++
				}
			}
			if reached != test.reached {
				t.Errorf("the request reached %d upstreams, want %d", reached, test.reached)
			}
			s.settled()
		})
	}
}

// Of two upstreams that cannot be reached and one that fails, none has been
// harmed by the request but the last: there is one more attempt.
func TestUnreachedUpstreamsAreNotHarmed(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	free := freeAddresses(t, 3)
	s := start(t, fmt.Sprintf(retryEverything, strings.Join(free, " ")+" "+up.address()))
	wantStatus(t, ended(t, s.sites[0], chat("hello")), http.StatusOK)
	if got := up.count(); got != 1 {
		t.Errorf("the upstream that is alive received %d requests, want 1", got)
	}
}

// A prompt that is longer than what is kept of one cannot be sent again. The
// client gets the status that there was.
func TestLongPromptIsSentOnce(t *testing.T) {
	upstreams := newUpstreams(t, 3, fails(503))
	s := start(t, strings.Replace(fmt.Sprintf(retryEverything, addresses(upstreams)),
		"llm_loadaware\n", "llm_loadaware {\nmax_body 1KiB\n}\n", 1))
	wantStatus(t, ended(t, s.sites[0], chat(words("long", 4000))), 503)
	if got := total(counts(upstreams)); got != 1 {
		t.Errorf("the request was sent %d times, want once", got)
	}
	s.settled()
}

// A prompt that an engine had accepted was sent again and computed twice.
//
// Once the response has begun, the client has a part of it.
func TestCaseC44NothingIsRepeatedAfterTheResponseHasBegun(t *testing.T) {
	for _, text := range []string{eventStreamHeader, eventStreamHeader + firstEventChunk} {
		broken := make(chan struct{})
		close(broken)
		upstreams := newUpstreams(t, 3, resetAfter(text, broken))
		s := production(t, upstreams)
		res, err := send(t.Context(), s.sites[0], chatPath, chat("hello"))
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if err == nil {
			t.Error("the client saw a complete response")
		}
		s.settled()
		if got := total(counts(upstreams)); got != 1 {
			t.Errorf("the request was sent %d times after %q, want once", got, text)
		}
	}
}

// A prompt that an engine had failed on was sent again, unasked.
//
// An engine that has answered 500 may have worked for minutes on it, so it is
// repeated only where the config says so.
func TestCaseC44ServerErrorIsRepeatedByConfigOnly(t *testing.T) {
	for _, test := range []struct {
		name    string
		start   func(t *testing.T, upstreams []*upstream) *server
		status  int
		another bool
	}{
		{"production", production, 500, false},
		{"asked for", func(t *testing.T, upstreams []*upstream) *server {
			return start(t, fmt.Sprintf(retryEverything, addresses(upstreams)))
		}, 200, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := test.start(t, upstreams)
			home := turn(t, s, upstreams, chat("hello"), "X-Session-ID", "s")
			home.setAnswer(fails(500))
			before := total(counts(upstreams))
			status, text := exchange(t, s.sites[0], chatPath, conversation("hello", "answer", "more"), "X-Session-ID", "s")
			if status != test.status || status == 500 && !strings.Contains(text, `"message":"no"`) {
				t.Errorf("status %d: %s, want %d as the upstream has it", status, text, test.status)
			}
			if got := total(counts(upstreams)) - before; (got > 1) != test.another {
				t.Errorf("the request was sent %d times, want more than once: %v", got, test.another)
			}
		})
	}
}
