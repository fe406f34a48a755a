// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// completion is a streamed request of the older API, which has one text.
func completion(texts ...string) string {
	body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "prompt": strings.Join(texts, "\n")})
	if err != nil {
		panic(err)
	}
	return string(body)
}

// Only one of two APIs was matched against what is cached, so conversations of
// the other one went anywhere.
func TestCaseC60BothAPIsFollowTheirPrompt(t *testing.T) {
	for _, api := range []struct {
		path string
		body func(texts ...string) string
	}{
		{chatPath, conversation},
		{"/v1/completions", completion},
	} {
		t.Run(api.path, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
			homes := map[int]*upstream{}
			texts := map[int][]string{}
			for n := range 4 {
				for k := range 3 {
					// in another order each time, so that taking turns is no way to pass
					i := (k + n) % 3
					texts[i] = append(texts[i], words(fmt.Sprint("conversation ", i, " turn ", n), 2000))
					before := counts(upstreams)
					if status, text := exchange(t, s.sites[0], api.path, api.body(texts[i]...)); status != http.StatusOK {
						t.Fatalf("status %d: %s", status, text)
					}
					s.settled()
					at := upstreams[slices.IndexFunc(upstreams, func(u *upstream) bool {
						return u.count() > before[slices.Index(upstreams, u)]
					})]
					if home := homes[i]; home != nil && home != at {
						t.Errorf("turn %d of conversation %d left its upstream", n, i)
					}
					homes[i] = at
				}
			}
			if len(homes) != 3 || homes[0] == homes[1] || homes[1] == homes[2] || homes[0] == homes[2] {
				t.Error("three conversations are not on three upstreams")
			}
		})
	}
}

// With one part of the routing at fault every request ended with status 500.
// Whatever cannot be known here, requests are placed by their load.
func TestCaseC61FailingPartsLeaveLoadRouting(t *testing.T) {
	for _, test := range []struct{ name, handler, policy, body string }{
		{"no handler", "", "", chat("hello")},
		{"a body that is no JSON", "llm_loadaware", "", "\x00\xff{[\"\n"},
		{"no room for bodies", "llm_loadaware {\nmax_buffered 1B\n}", "", chat(words("long", 2000))},
		{"no room for sessions", "llm_loadaware", "max_sessions 1", chat("hello")},
		{"no metrics where they should be", "llm_loadaware", "metrics /nowhere {\nport 1\n}", chat("hello")},
		{"no prefix index", "llm_loadaware", "prefix_index off", chat(words("long", 2000))},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := start(t, fmt.Sprintf("{site0} {\n%s\nreverse_proxy %s {\nlb_policy llm_loadaware {\n%s\n}\n}\n}\n",
				test.handler, addresses(upstreams), test.policy))
			got := burst(t, s.sites[:1], upstreams, repeated(9, func(int) string { return test.body }))
			if want := []int{3, 3, 3}; !slices.Equal(got, want) {
				t.Errorf("9 requests went %v, want %v", got, want)
			}
			s.settled()
			for i := range 6 {
				status, text := exchange(t, s.sites[0], chatPath, test.body, "X-Session-ID", fmt.Sprint(i))
				if status != http.StatusOK {
					t.Errorf("request %d: status %d: %s", i, status, text)
				}
			}
			s.settled()
		})
	}
}

// Prompts above a cap were refused, and uploads too. What is longer than is
// looked at is passed on and balanced.
func TestCaseC63BodiesOverTheCapAreBalanced(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(siteConfig, addresses(upstreams), "{\n\tmax_body 16KiB\n}", ""))
	bodies := repeated(9, func(i int) string { return chat(words(fmt.Sprint("long ", i), 400_000)) })
	if got := burst(t, s.sites[:1], upstreams, bodies); !slices.Equal(got, []int{3, 3, 3}) {
		t.Errorf("9 long requests went %v, want 3 each", got)
	}
	s.settled()
	for _, u := range upstreams {
		if got := u.last().body; !slices.Contains(bodies, got) {
			t.Errorf("an upstream received another body of %d bytes", len(got))
		}
	}
}

// An adapter's requests were refused or answered by its base. The name reaches
// the engine as it is, and neither is taken to have what the other has cached.
func TestCaseC65AdapterAndBaseShareNothing(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	upstreams := []*upstream{up}
	s := start(t, fmt.Sprintf(oneSite, up.address()))
	prompt := words("prompt", 10_000)
	for _, header := range [][]string{nil, {"X-Session-ID", "one name"}} {
		for _, model := range []string{"base", "base-lora", "org/odd:name@1"} {
			body := asking(model, prompt+fmt.Sprint(header))
			cold := open(t, s, upstreams, body, header...)
			if got := s.fleet().of(up).PrefillTokens; header == nil && got < 10_000 {
				t.Errorf("first prompt for %s counts %d tokens, want all 10000", model, got)
			}
			if up.last().body != body {
				t.Errorf("the engine received %.60q", up.last().body)
			}
			cold.show(s)
			cold.end()
			s.settled()
		}
	}
	// three names of one session are three sessions
	if got := s.fleet().Sessions; got != 3 {
		t.Errorf("sessions = %d, want one for each model", got)
	}
	if got := s.fleet().total().Placements["new"]; got != 3 {
		t.Errorf("new sessions = %d, want 3", got)
	}
}
