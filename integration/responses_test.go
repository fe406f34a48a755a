// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// stateful is a site in front of engines that keep their responses to
// themselves, with an option of the policy.
const stateful = `
{site0} {
	llm_loadaware
	header >X-Upstream {http.llm_loadaware.upstream}
	reverse_proxy %s {
		lb_policy llm_loadaware {
			metrics off
			%s
		}
		lb_retries 2
	}
}
`

// answerOf sends a request to the site and returns the status, the upstream and
// the body of the answer.
func answerOf(t *testing.T, s *server, method, path, body string) (status int, upstream, text string) {
	t.Helper()
	res, text := exchangeAs(t, method, s.sites[0], path, body)
	return res.StatusCode, res.Header.Get("X-Upstream"), text
}

// makeResponse creates a response and returns its id and its upstream.
func makeResponse(t *testing.T, s *server, body string) (id, upstream string) {
	t.Helper()
	status, upstream, text := answerOf(t, s, http.MethodPost, "/v1/responses", body)
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	var made struct{ ID string }
	if line, streamed := strings.CutPrefix(text, "event: response.created\ndata: "); streamed {
		var event struct{ Response struct{ ID string } }
		if err := json.NewDecoder(strings.NewReader(line)).Decode(&event); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return event.Response.ID, upstream
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || made.ID == "" {
		t.Fatalf("%v: %s", err, text)
	}
	return made.ID, upstream
}

// An engine keeps its responses in its own memory: whatever refers to one has to
// reach that engine, and would not find it anywhere else.
func TestResponsesStayWithTheirEngine(t *testing.T) {
	var hosts []*vllmsim.Host
	var list []string
	for range 3 {
		host := simulated(t, vllmsim.ServerConfig{})
		hosts, list = append(hosts, host), append(list, host.Addr())
	}
	s := start(t, fmt.Sprintf(stateful, strings.Join(list, " "), ""))

	const each = 4
	made, homes := map[string]string{}, map[string]int{}
	for i := range each * len(hosts) {
		extra := []string{"", `,"stream":true`, `,"background":true`}[i%3]
		id, home := makeResponse(t, s, fmt.Sprintf(`{"model":"m","max_output_tokens":2,"input":%q%s}`, words(fmt.Sprint(i), 600), extra))
		made[id] = home
		homes[home]++
	}
	if len(homes) != len(hosts) {
		t.Fatalf("responses were made by %v, want all engines to have made some", homes)
	}
	refer := func(when string) {
		t.Helper()
		for id, home := range made {
			for _, question := range []struct{ method, path, body string }{
				{http.MethodGet, "/v1/responses/" + id, ""},
				{http.MethodPost, "/v1/responses", fmt.Sprintf(`{"model":"m","max_output_tokens":2,"input":"go on","previous_response_id":%q}`, id)},
			} {
				if status, at, text := answerOf(t, s, question.method, question.path, question.body); status != http.StatusOK || at != home {
					t.Errorf("%s: %s %s %s: status %d from %s, want 200 from %s: %s",
						when, question.method, question.path, question.body, status, at, home, text)
				}
			}
		}
	}
	placements := sum(s.fleet().total().Placements)
	refer("at once")
	if got := sum(s.fleet().total().Placements) - placements; got != len(made) {
		t.Errorf("%d placements for %d continuations and as many questions, want those of the continuations", got, len(made))
	}
	if err := s.reload(fmt.Sprintf(stateful, strings.Join(list, " "), "stickiness 1")); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	refer("after a reload")

	for id, home := range made {
		// what has ended cannot be canceled, and is known all the same
		if status, at, text := answerOf(t, s, http.MethodPost, "/v1/responses/"+id+"/cancel", ""); status == http.StatusNotFound || at != home {
			t.Errorf("cancel: status %d from %s, want an answer from %s: %s", status, at, home, text)
		}
		if status, at, text := answerOf(t, s, http.MethodDelete, "/v1/responses/"+id, ""); status != http.StatusOK || at != home {
			t.Errorf("delete: status %d from %s, want 200 from %s: %s", status, at, home, text)
		}
	}
	s.settled()
}

// Without its engine a response is lost, and the client hears that from another
// one, which is not to blame.
func TestResponseOfStoppedEngine(t *testing.T) {
	hosts := map[string]*vllmsim.Host{}
	var list []string
	for range 2 {
		host := simulated(t, vllmsim.ServerConfig{})
		hosts[host.Addr()], list = host, append(list, host.Addr())
	}
	s := start(t, fmt.Sprintf(stateful, strings.Join(list, " "), ""))
	id, home := makeResponse(t, s, `{"model":"m","max_output_tokens":2,"input":"hello"}`)
	hosts[home].Stop()
	for _, question := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/responses/" + id, ""},
		{http.MethodPost, "/v1/responses", fmt.Sprintf(`{"model":"m","input":"go on","previous_response_id":%q}`, id)},
	} {
		for range 5 {
			status, at, text := answerOf(t, s, question.method, question.path, question.body)
			if status != http.StatusNotFound || !strings.Contains(text, id) {
				t.Errorf("%s %s: status %d from %s, want the engine's 404: %s", question.method, question.path, status, at, text)
			}
		}
	}
	for _, u := range s.fleet().Upstreams {
		if u.Upstream != home && u.State != "available" {
			t.Errorf("%s is %s, want it available", u.Upstream, u.State)
		}
	}
	s.settled()
}
