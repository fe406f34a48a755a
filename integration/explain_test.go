// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// explain asks where a request would go. The query may be empty.
func (s *server) explain(query, body string, header ...string) (p shownPlacement) {
	s.t.Helper()
	status, text := exchange(s.t, s.admin, "/llm_loadaware/fleets/default/explain"+query, body, header...)
	if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusOK {
		s.t.Fatalf("POST explain%s: status %d, %v: %s", query, status, err, text)
	}
	return p
}

// What is explained is what happens next, whatever has happened before: sessions
// of several turns, prompts that begin alike, long and short ones, with others in
// flight that show their output and end at any time.
func TestExplainThroughCaddy(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	random := rand.New(rand.NewPCG(1, 2))
	var streams []*stream
	reasons := map[string]int{}
	for i := range 60 {
		session := fmt.Sprint(random.IntN(12))
		body := chat(words("shared", 400*random.IntN(3)) + words("of "+session, 100*(1+i/12)) + words(fmt.Sprint(i), random.IntN(2)*random.IntN(3000)))
		var header []string
		if random.IntN(3) > 0 {
			header = []string{"X-Session-ID", session}
		}
		before := s.fleet()
		want := s.explain("", body, header...)
		if after := s.fleet(); after.Sessions != before.Sessions || s.inFlight() != len(streams) || sum(after.total().Placements) != i {
			t.Fatalf("request %d: explaining it has changed the fleet: %+v", i, after)
		}
		if want.Upstream == "" || want.Reason == "" || len(want.Upstreams) != 3 {
			t.Fatalf("request %d: explained as %+v, want an upstream, a reason and three costs", i, want)
		}
		streams = append(streams, open(t, s, upstreams, body, header...))
		got := s.placements("?limit=1")[0]
		if got.Upstream != want.Upstream || got.Reason != want.Reason || got.UncachedTokens != want.UncachedTokens || got.Session != want.Session {
			t.Fatalf("request %d: explained as %+v, and placed as %+v", i, want, got)
		}
		reasons[got.Reason]++
		for len(streams) > random.IntN(10) {
			at := random.IntN(len(streams))
			streams[at].finish(s)
			streams = slices.Delete(streams, at, at+1)
		}
	}
	if len(reasons) < 4 {
		t.Errorf("reasons = %v, want four kinds at least", reasons)
	}
	for _, st := range streams {
		st.finish(s)
	}
}

// finish lets the answer show its output and end, and waits until it is counted
// no more.
func (st *stream) finish(s *server) {
	st.t.Helper()
	running := s.inFlight()
	close(st.stage.output)
	st.end()
	eventually(st.t, func() bool { return s.inFlight() < running },
		func() string { return "request is still counted after its end" })
}

// An explained request is read as the handler in front of the policy does it, by
// the path that it would have, and placed by the options of the policy asked.
func TestExplainAsConfigured(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	s := start(t, strings.ReplaceAll(`{site0} {
	llm_loadaware {
		media_tokens 5000
	}
	reverse_proxy UP {
		lb_policy llm_loadaware {
			session_header X-Mine
		}
	}
}
{site1} {
	reverse_proxy UP {
		lb_policy llm_loadaware {
			request_cost 77
			queue {
				max_requests 3
			}
			metrics {
				header Authorization "Bearer hidden"
			}
		}
	}
}
`, "UP", up.address()))
	image := `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`
	before := s.explain("", image).PromptTokens
	if status, text := exchange(t, s.sites[0], chatPath, image); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	s.settled()
	if after := s.explain("", image).PromptTokens; before >= 5000 || after < 5000 {
		t.Errorf("an image counts %d tokens before a request has come by, and %d after one, want the handler's 5000 then", before, after)
	}
	if p := s.explain("?policy=0", chat("Hello"), "X-Mine", "a"); p.Session == "" || p.Reason != "new" {
		t.Errorf("with the header of policy 0: %+v, want a new session", p)
	}
	if p := s.explain("?policy=1", chat("Hello"), "X-Mine", "a"); p.Session != "" || p.Reason != "load" && p.Reason != "prefix" {
		t.Errorf("with a header that policy 1 does not know: %+v, want no session", p)
	}
	if p := s.explain("?path=/v1/completions", `{"prompt":[1,2,3,4,5]}`); p.PromptTokens != 5 {
		t.Errorf("five token ids count as %d tokens, want 5", p.PromptTokens)
	}
	if p := s.explain("", "no JSON "+words("x", 1000)); p.PromptTokens < 1000 || p.Upstream != up.address() {
		t.Errorf("what cannot be read is placed as %+v, want it by its size", p)
	}
	_, text := s.get("/llm_loadaware/fleets/default")
	for _, want := range []string{`"request_cost":77`, `"request_cost":4096`, `"max_requests":3`, `"X-Mine"`, `"cold_prompt":{"prompt_tokens":1000`} {
		if !strings.Contains(text, want) {
			t.Errorf("GET fleet has no %s: %s", want, text)
		}
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("GET fleet shows the value of a header: %s", text)
	}
	if err := s.reload(fmt.Sprintf("{site0} {\n\treverse_proxy %s {\n\t\tlb_policy llm_loadaware {\n\t\t\tstickiness 5\n\t\t}\n\t}\n}\n", up.address())); err != nil {
		t.Fatal(err)
	}
	if _, text := s.get("/llm_loadaware/fleets/default"); strings.Count(text, `"request_cost":`) != 1 || !strings.Contains(text, `"stickiness":5,`) {
		t.Errorf("after a reload the policies are not the one of the new configuration: %s", text)
	}
}

// A policy without an upstream that can be used says so.
func TestExplainWithoutUpstreams(t *testing.T) {
	s := start(t, `{site0} {
	reverse_proxy {
		dynamic a {
			name nowhere.invalid
			port 8000
		}
		lb_policy llm_loadaware
	}
}
`)
	if p := s.explain("", chat(words("Hello", 100))); p.Upstream != "" || p.Waits || p.Upstreams == nil || p.Reason != "" || p.PromptTokens != 100 {
		t.Errorf("explained as %+v, want 100 tokens, no upstream, no reason and an empty list", p)
	}
}

func TestExplainRefuses(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, up.address()))
	const fleets = "/llm_loadaware/fleets/"
	for _, test := range []struct {
		method, path string
		status       int
		says         string
	}{
		{http.MethodGet, fleets + "default/explain", 405, "method not allowed"},
		{http.MethodPost, fleets + "other/explain", 404, "fleet not found: other"},
		{http.MethodPost, fleets + "default/explain?policy=2", 404, "policy not found: 2 of the"},
		{http.MethodPost, fleets + "default/explain?policy=x", 400, "policy must be"},
		{http.MethodPost, fleets + "default/explain?policy=-1", 400, "policy must be"},
		{http.MethodPost, fleets + "default/explain?path=tokenize", 400, "path must begin with a slash"},
		{http.MethodPost, fleets + "default/explain?path=/tokenize", 400, "path has no prompt: /tokenize"},
		{http.MethodGet, fleets + "default/sessions", 405, "method not allowed"},
		{http.MethodDelete, fleets + "other/sessions", 404, "fleet not found: other"},
	} {
		body := chat("Hello")
		if test.method == http.MethodGet {
			body = ""
		}
		res, text := exchangeAs(t, test.method, s.admin, test.path, body)
		if res.StatusCode != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s %s: status %d: %s, want %d and %q", test.method, test.path, res.StatusCode, text, test.status, test.says)
		}
	}
}

// Forgotten sessions begin anew, and the answer says how many there were.
func TestForgetSessions(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(burstConfig, addresses(upstreams)))
	home := turn(t, s, upstreams, chat(words("hello", 600)), "X-Session-ID", "a")
	status, text := s.ask(http.MethodDelete, "/llm_loadaware/fleets/default/sessions")
	if status != http.StatusOK || strings.TrimSpace(text) != `{"sessions_forgotten":1}` || s.fleet().Sessions != 0 {
		t.Errorf("DELETE sessions: status %d: %s, with %d left", status, text, s.fleet().Sessions)
	}
	if again := turn(t, s, upstreams, chat(words("hello", 600)), "X-Session-ID", "a"); again != home {
		t.Errorf("the session begins anew on %s, want %s, where its prompt is cached", again.address(), home.address())
	}
	if p := s.placements("?limit=1")[0]; p.Reason != "new" {
		t.Errorf("its next request is %+v, want a new session's", p)
	}
}
