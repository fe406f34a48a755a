// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// stream is a request whose answer the test moves along.
type stream struct {
	t     *testing.T
	stage *stage
	done  chan struct{}
	at    *upstream
}

// open sends a chat request that stays without output until the test calls
// show, and waits until an upstream has it.
func open(t *testing.T, s *server, upstreams []*upstream, body string, header ...string) *stream {
	t.Helper()
	return openAt(t, s.sites[0], upstreams, body, header...)
}

// openAt is open for another site than the first.
func openAt(t *testing.T, site string, upstreams []*upstream, body string, header ...string) *stream {
	t.Helper()
	st := &stream{t: t, stage: newStage(), done: make(chan struct{})}
	before := counts(upstreams)
	for _, u := range upstreams {
		u.setAnswer(st.stage.answer)
	}
	go func() {
		defer close(st.done)
		res, err := send(t.Context(), site, chatPath, body, header...)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
	}()
	eventually(t, func() bool {
		for i, u := range upstreams {
			if u.count() > before[i] {
				st.at = u
				return true
			}
		}
		return false
	}, func() string { return "no upstream has received the request" })
	return st
}

// show lets the engine show its first output, and waits until that was seen.
func (st *stream) show(s *server) {
	st.t.Helper()
	waiting := s.fleet().of(st.at).RequestsWaiting
	close(st.stage.output)
	eventually(st.t, func() bool { return s.fleet().of(st.at).RequestsWaiting < waiting },
		func() string { return "first output was not noticed" })
}

// end lets the answer end and waits for the client to have it.
func (st *stream) end() {
	close(st.stage.end)
	<-st.done
}

// turn is a whole exchange, and says which upstream had it. It waits until the
// request is no longer counted either: the client has all of the answer a moment
// before the handler has returned.
func turn(t *testing.T, s *server, upstreams []*upstream, body string, header ...string) *upstream {
	t.Helper()
	before := counts(upstreams)
	running := s.inFlight()
	for _, u := range upstreams {
		u.setAnswer(answerAtOnce)
	}
	if status, text := exchange(t, s.sites[0], chatPath, body, header...); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	eventually(t, func() bool { return s.inFlight() <= running },
		func() string { return "request is still counted after its end" })
	for i, u := range upstreams {
		if u.count() > before[i] {
			return u
		}
	}
	t.Fatal("no upstream has received the request")
	return nil
}

// A connection count takes a long cold prompt for the same as a warm turn; here
// the upstream that is busy with the one loses to the upstream with more of the
// other.
func TestLongPrefillOutweighsWarmRequests(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))

	long := open(t, s, upstreams, chat(words("long", 140_000)))
	var warm []*stream
	for i := range 3 {
		st := open(t, s, upstreams, chat(words(fmt.Sprint("short ", i), 50)))
		if st.at == long.at {
			t.Fatalf("short request %d went to the upstream in the middle of a long prefill", i)
		}
		st.show(s)
		warm = append(warm, st)
	}
	if got := turn(t, s, upstreams, chat(words("next", 2000))); got == long.at {
		t.Errorf("next request went to %+v, want the upstream with warm requests %+v",
			s.fleet().of(long.at), s.fleet().of(warm[0].at))
	}
	long.show(s)
	long.end()
	for _, st := range warm {
		st.end()
	}
	s.settled()
}

// siteForEach has one site for both upstreams and one for each of them.
func siteForEach(upstreams []*upstream) string {
	var config strings.Builder
	for i, pool := range [][]*upstream{upstreams, upstreams[:1], upstreams[1:]} {
		fmt.Fprintf(&config, `
{site%d} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			stickiness 16384
			request_cost 4096
			congestion 0
			eviction 0
			prefix_index off
		}
	}
}
`, i, addresses(pool))
	}
	return config.String()
}

// Sessions that a hash had bound stayed at an engine that thrashed, at a quarter of
// the speed.
//
// A session stays while its home costs up to stickiness more than the best
// upstream, and leaves when it costs more. With a request cost of 4,096 and no
// uncached tokens at home the limit is four requests and what the session would
// have to prefill elsewhere.
func TestCaseC18SessionMovesOnceUnderPressure(t *testing.T) {
	const session = "conversation of the test"
	prompt := words("first turn", 1000)
	for _, test := range []struct {
		name    string
		load    int
		stays   bool
		reasons map[string]int
	}{
		{"home has four requests more", 4, true, map[string]int{"new": 1, "pinned": 2}},
		{"home has nine requests more", 9, false, map[string]int{"new": 1, "pinned": 1, "moved_pressure": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, answerAtOnce)
			s := start(t, siteForEach(upstreams))
			home := turn(t, s, upstreams, chat(prompt), "X-Session-ID", session)

			// the site that has the home alone is where the load comes from
			alone := s.sites[1]
			if home == upstreams[1] {
				alone = s.sites[2]
			}
			var load []*stream
			for i := range test.load {
				st := openAt(t, alone, upstreams, chat(words(fmt.Sprint("load ", i), 10)))
				st.show(s)
				load = append(load, st)
			}
			second := turn(t, s, upstreams, conversation(prompt, "answer", "more"), "X-Session-ID", session)
			if stayed := second == home; stayed != test.stays {
				t.Errorf("session stayed = %v, want %v", stayed, test.stays)
			}
			third := turn(t, s, upstreams, conversation(prompt, "answer", "more", "answer", "and more"), "X-Session-ID", session)
			if third != second {
				t.Error("session did not stay where its last turn was")
			}
			placed := s.fleet().total().Placements
			for reason, want := range test.reasons {
				if placed[reason] != want {
					t.Errorf("placements = %v, want %v of them", placed, test.reasons)
					break
				}
			}
			for _, st := range load {
				st.end()
			}
			s.settled()
		})
	}
}

// A pinned request is charged for what its prompt grew, and for all of it when
// it shrank.
func TestGrowthRule(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, siteForEach(upstreams))
	first, answer, question := words("first", 8000), words("answer", 100), words("question", 400)
	steps := []struct {
		name     string
		body     string
		min, max int
	}{
		{"new counts whole", conversation(first), 8000, 8100},
		{"grown counts its growth", conversation(first, answer, question), 500, 600},
		{"shrunk counts whole", conversation(question), 400, 500},
	}
	for _, step := range steps {
		st := open(t, s, upstreams, step.body, "X-Session-ID", "growing")
		if got := s.fleet().of(st.at).PrefillTokens; got < step.min || got > step.max {
			t.Errorf("%s: prefill tokens = %d, want %d to %d", step.name, got, step.min, step.max)
		}
		st.show(s)
		st.end()
	}
	s.settled()
}
