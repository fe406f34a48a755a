// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"testing"
)

const stickyConfig = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			congestion 0
			eviction 0
			%s
		}
	}
}
`

// Claude Code asks for a count of the same prompt that it is about to send, in
// the same session. A router that takes the count for a turn pins the session
// to an upstream that has prefilled nothing, and charges the turn after it
// nothing.
func TestCountTokensIsNoTurn(t *testing.T) {
	const count = messagesPath + "/count_tokens"
	first, answer, question := words("first", 8000), words("answer", 100), words("question", 400)
	for _, test := range []struct{ name, option string }{
		{"growth rule", "prefix_index off"},
		{"prefix index", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, nil)
			s := start(t, fmt.Sprintf(stickyConfig, addresses(upstreams), test.option))

			turns := []struct {
				name     string
				body     string
				min, max int
			}{
				{"first turn", conversation(first), 8000, 8100},
				// what the index matches is whole blocks of 256 tokens
				{"second turn", conversation(first, answer, question), 500, 500 + 256 + 100},
			}
			for i, turn := range turns {
				before := s.fleet()
				counting := newScript(map[string]string{"Content-Type": "application/json"})
				for _, u := range upstreams {
					u.setAnswer(counting.answer)
				}
				res := begin(t, s.sites[0], count, turn.body, "X-Session-ID", "s")
				during := s.fleet()
				if sums := during.total(); sums.RequestsInFlight != 1 || sums.RequestsWaiting != 0 || sums.PrefillTokens != 0 {
					t.Errorf("count before %s: %+v, want one in flight and nothing held", turn.name, during)
				}
				counting.write(t, res.Body, `{"input_tokens":8000}`)
				close(counting.pieces)
				rest(t, res)
				s.settled()
				if after := s.fleet(); !reflect.DeepEqual(after, before) {
					t.Errorf("count before %s left %+v, want %+v", turn.name, after, before)
				}
				if got := s.fleet().Sessions; got != i {
					t.Errorf("sessions before %s = %d, want %d", turn.name, got, i)
				}

				st := open(t, s, upstreams, turn.body, "X-Session-ID", "s")
				if got := s.fleet().of(st.at).PrefillTokens; got < turn.min || got > turn.max {
					t.Errorf("%s: prefill tokens = %d, want %d to %d", turn.name, got, turn.min, turn.max)
				}
				st.show(s)
				st.end()
				s.settled()
			}
			if got := s.fleet().total().Placements; got["new"] != 1 || got["pinned"] != 1 || sum(got) != 2 {
				t.Errorf("placements = %v, want one new and one pinned", got)
			}
		})
	}
}

// A count that fails is no failure of the session's turn either.
func TestFailedCountTokensIsNoTurn(t *testing.T) {
	upstreams := newUpstreams(t, 2, nil)
	s := start(t, fmt.Sprintf(stickyConfig, addresses(upstreams), ""))
	home := turn(t, s, upstreams, chat(words("first", 2000)), "X-Session-ID", "s")
	s.settled()
	before := s.fleet()
	for _, u := range upstreams {
		u.setAnswer(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotImplemented)
			io.WriteString(w, "not here")
		})
	}
	if status, _ := exchange(t, s.sites[0], messagesPath+"/count_tokens", chat(words("first", 2000)), "X-Session-ID", "s"); status != http.StatusNotImplemented {
		t.Errorf("status = %d, want that of the upstream", status)
	}
	s.settled()
	if after := s.fleet(); !reflect.DeepEqual(after, before) {
		t.Errorf("failed count left %+v, want %+v", after, before)
	}
	if got := turn(t, s, upstreams, chat(words("first", 2000)), "X-Session-ID", "s"); got != home {
		t.Error("session left its home after a failed count")
	}
	s.settled()
}
