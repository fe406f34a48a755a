// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"testing"
)

const failingConfig = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			%s
		}
		transport http {
			keepalive off
		}
		%s
	}
}
`

// What a failed dispatch has taught is taken back: the session is where it was
// and counts its growth from the last turn that succeeded, and the index holds
// what it held.
func TestFailureTeachesNothing(t *testing.T) {
	failures := []struct {
		name    string
		answer  http.HandlerFunc
		retries string
	}{
		{"server error", fails(500), ""},
		{"client error", fails(400), ""},
		{"reset", func(w http.ResponseWriter, _ *http.Request) { reset(w) }, ""},
		{"headers and a reset", func(w http.ResponseWriter, _ *http.Request) {
			conn := hijack(w)
			defer conn.Close()
			_ = conn.(*net.TCPConn).SetLinger(0)
			io.WriteString(conn, eventStreamHeader)
		}, ""},
		{"failed retry elsewhere", fails(503), retryOn503},
		{"error event", answerError, ""},
	}
	first, answer, question := words("first", 4000), words("answer", 50), words("question", 8000)
	for _, index := range []struct{ name, option string }{{"index on", ""}, {"index off", "prefix_index off"}} {
		for _, failure := range failures {
			t.Run(index.name+", "+failure.name, func(t *testing.T) {
				upstreams := newUpstreams(t, 2, nil)
				s := start(t, fmt.Sprintf(failingConfig, addresses(upstreams), index.option, failure.retries))
				home := turn(t, s, upstreams, chat(first), "X-Session-ID", "s")
				before := s.fleet()

				for _, u := range upstreams {
					u.setAnswer(failure.answer)
				}
				if status := ended(t, s.sites[0], conversation(first, answer, question), "X-Session-ID", "s"); status != 200 && status < 400 {
					t.Errorf("status = %d, want a failure", status)
				}
				// a session that never had a successful turn is not remembered
				ended(t, s.sites[0], chat(words("unknown", 3000)), "X-Session-ID", "new")
				s.settled()
				after := s.fleet()
				if after.Sessions != 1 {
					t.Errorf("sessions = %d, want 1", after.Sessions)
				}
				for _, u := range upstreams {
					got, want := after.of(u), before.of(u)
					if got.Sessions != want.Sessions || got.PrefixBlocks != want.PrefixBlocks {
						t.Errorf("upstream has %d sessions and %d blocks, want %d and %d as before",
							got.Sessions, got.PrefixBlocks, want.Sessions, want.PrefixBlocks)
					}
				}

				// elsewhere, or with what the failed turn left, it would count
				// other than its growth by 50 and 500
				next := open(t, s, upstreams, conversation(first, answer, words("other question", 500)), "X-Session-ID", "s")
				if next.at != home {
					t.Error("next turn left the home of the last successful one")
				}
				if got := s.fleet().of(home).PrefillTokens; got < 550 || got > 550+256+50 {
					t.Errorf("prefill tokens of the next turn = %d, want its growth of 550", got)
				}
				if got := since(after.total().Placements, s.fleet().total().Placements); !maps.Equal(got, map[string]int{"pinned": 1}) {
					t.Errorf("placements of the next turn = %v, want one pinned", got)
				}
				next.show(s)
				next.end()
				s.settled()
			})
		}
	}
}

// The engine that refuses a prompt has cached nothing of it, and has evicted
// nothing for it. The index holds a quarter more than its capacity until it is
// known what reached the engine.
func TestRefusedPromptEvictsNothing(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	// room for 100 blocks
	s := start(t, fmt.Sprintf(failingConfig, up.address(), "kv_tokens 25600", ""))
	turn(t, s, []*upstream{up}, chat(words("cached", 90*256)))
	before := s.fleet().of(up).PrefixBlocks
	up.setAnswer(fails(400))
	wantStatus(t, ended(t, s.sites[0], chat(words("refused", 20*256))), 400)
	s.settled()
	if got := s.fleet().of(up).PrefixBlocks; got != before {
		t.Errorf("blocks = %d after a refused prompt, want %d as before", got, before)
	}
}

// Every retry of a session went to the same dead worker until there were no more,
// with another worker idle.
//
// A retry goes elsewhere even from the session's home, and a session whose turn
// succeeded elsewhere is at home there.
func TestCaseC40RetryLeavesHome(t *testing.T) {
	upstreams := newUpstreams(t, 2, nil)
	s := start(t, fmt.Sprintf(failingConfig, addresses(upstreams), "", retryOn503))
	first := words("first", 40_000)
	home := turn(t, s, upstreams, chat(first), "X-Session-ID", "s")
	elsewhere := upstreams[0]
	if elsewhere == home {
		elsewhere = upstreams[1]
	}
	blocks := s.fleet().of(home).PrefixBlocks
	before := s.fleet().total()

	home.setAnswer(fails(503))
	elsewhere.setAnswer(answerAtOnce)
	received := counts(upstreams)
	body := conversation(first, "answer", "second")
	wantStatus(t, ended(t, s.sites[0], body, "X-Session-ID", "s"), 200)
	for i, u := range upstreams {
		if got := u.count() - received[i]; got != 1 {
			t.Errorf("upstream %d received the request %d times, want once", i, got)
		}
		if u.last().body != body {
			t.Errorf("upstream %d received %d bytes, want the whole body of %d", i, len(u.last().body), len(body))
		}
	}
	after := s.fleet()
	if got := since(before.Placements, after.total().Placements); !maps.Equal(got, map[string]int{"pinned": 1, "moved_unavailable": 1}) {
		t.Errorf("placements = %v, want one pinned and one moved away", got)
	}
	if got := since(before.Releases, after.total().Releases); !maps.Equal(got, map[string]int{"retried": 1, "first_output": 1}) {
		t.Errorf("causes = %v, want one retried and one first output", got)
	}
	if got := after.of(home); got.Sessions != 0 || got.PrefixBlocks != blocks {
		t.Errorf("home that failed has %d sessions and %d blocks, want none and %d", got.Sessions, got.PrefixBlocks, blocks)
	}
	if got := turn(t, s, upstreams, conversation(first, "answer", "second", "answer", "third"), "X-Session-ID", "s"); got != elsewhere {
		t.Error("session went back to the home that had failed")
	}
	s.settled()
}

// A response route that proxies an error status again is a fallback: the first
// upstream has cached nothing, and is no home.
func TestFallbackByResponseRoute(t *testing.T) {
	first, second := newUpstream(t, fails(503)), newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf("{site0} {\n"+proxyTo+"}\n", first.address(), fmt.Sprintf(`
		@down status 503
		handle_response @down {
			reverse_proxy %s {
				lb_policy llm_loadaware
			}
		}
	`, second.address())))
	body := chat(words("the request", 20_000))
	wantStatus(t, ended(t, s.sites[0], body, "X-Session-ID", "s"), 200)
	s.settled()
	if second.last().body != body {
		t.Errorf("fallback received %d bytes, want the whole body of %d", len(second.last().body), len(body))
	}
	f := s.fleet()
	if got := f.of(first); got.Sessions != 0 || got.PrefixBlocks != 0 || got.Releases["error"] != 1 {
		t.Errorf("upstream that failed: %+v, want no session, no blocks and one error", got)
	}
	if got := f.of(second); got.Sessions != 1 || got.PrefixBlocks == 0 || got.Releases["first_output"] != 1 {
		t.Errorf("upstream that answered: %+v, want the session, blocks and one first output", got)
	}
	if s.failedLoad(first) == 0 {
		t.Error("upstream that failed has no load of its failure")
	}
}
