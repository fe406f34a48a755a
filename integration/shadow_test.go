// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(new(noSelector))
	caddy.RegisterModule(new(obedient))
}

// noSelector is a module where a policy should be.
type noSelector struct{}

// CaddyModule returns the Caddy module information.
func (*noSelector) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.test_no_selector",
		New: func() caddy.Module { return new(noSelector) },
	}
}

// UnmarshalCaddyfile takes what is there.
func (*noSelector) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	for d.Next() {
	}
	return nil
}

// obedient is a policy that selects what the header X-Upstream names by its
// address, whether it is available or not, and nothing without.
type obedient struct{ noSelector }

// CaddyModule returns the Caddy module information.
func (*obedient) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.selection_policies.test_obedient",
		New: func() caddy.Module { return new(obedient) },
	}
}

// Select implements reverseproxy.Selector.
func (*obedient) Select(pool reverseproxy.UpstreamPool, r *http.Request, _ http.ResponseWriter) *reverseproxy.Upstream {
	for _, u := range pool {
		if u.Dial == r.Header.Get("X-Upstream") {
			return u
		}
	}
	return nil
}

// policySite is a site with a policy and options of the proxy.
const policySite = `
{site0} {
	log
	llm_loadaware
	reverse_proxy %s {
		lb_policy %s
		%s
	}
}
`

// shadowing is the policy in the shadow of another one.
func shadowing(policy string) string { return "llm_loadaware {\nshadow " + policy + "\n}" }

// shadowStatus is what the admin API shows of the choices.
type shadowStatus struct {
	Placements    map[string]int     `json:"shadow_placements"`
	PrefillTokens map[string]float64 `json:"shadow_prefill_tokens"`
	CostTokens    map[string]float64 `json:"shadow_cost_tokens"`
}

func (s *server) shadow() (status shadowStatus) {
	s.t.Helper()
	_, text := s.get("/llm_loadaware/fleets/default")
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return status
}

// sequence sends requests one after the other, of three sessions in turn, and
// returns which upstreams they went to and how they were answered.
func sequence(t *testing.T, config string, upstreams []*upstream, n int) (list []string, s *server) {
	t.Helper()
	s = start(t, config)
	for i := range n {
		before := counts(upstreams)
		session := fmt.Sprint("session ", i%3)
		body := chat(words(session, 300*(1+i)))
		status, _ := exchange(t, s.sites[0], chatPath, body, "X-Session-ID", session)
		step := []any{status}
		for j, u := range upstreams {
			if got := u.count(); got > before[j] {
				step = append(step, fmt.Sprintf("%d of %d", got-before[j], j))
				if u.last().body != body {
					t.Errorf("request %d: upstream %d received another body", i, j)
				}
			}
		}
		list = append(list, fmt.Sprint(step...))
	}
	return list, s
}

// Requests go where the policy sends them that decides, retries too, and are
// answered as by that policy alone.
func TestShadowAnswersAsThePolicyAlone(t *testing.T) {
	const n = 24
	for _, test := range []struct {
		name, policy, options string
		dies                  func(upstreams []*upstream)
		placed                int
	}{
		{"round_robin", "round_robin", "", nil, n},
		{"first", "first", "", nil, n},
		{"header", "header X-Session-ID", "", nil, n},
		{"weights", "weighted_round_robin 3 1 2", "", nil, n},
		// without buffers Caddy alone has no body for a retry, and two transports at the
		// one that was sent
		{"retries", "round_robin", retry503 + "request_buffers 1MiB", func(upstreams []*upstream) { upstreams[1].setAnswer(fails(http.StatusServiceUnavailable)) }, n + n/2},
		{"no retries", "round_robin", "", func(upstreams []*upstream) { upstreams[1].setAnswer(fails(http.StatusServiceUnavailable)) }, n},
		{"nothing selected", "test_obedient", "lb_retries 2", nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			if test.dies != nil {
				test.dies(upstreams)
			}
			var alone []string
			t.Run("alone", func(t *testing.T) {
				alone, _ = sequence(t, fmt.Sprintf(policySite, addresses(upstreams), test.policy, test.options), upstreams, n)
			})
			got, s := sequence(t, fmt.Sprintf(policySite, addresses(upstreams), shadowing(test.policy), test.options), upstreams, n)
			for i, u := range upstreams {
				if key, ok := u.last().header["Idempotency-Key"]; ok {
					t.Errorf("upstream %d was sent an idempotency key %q that no client has", i, key)
				}
			}
			if !slices.Equal(got, alone) {
				t.Errorf("in the shadow of %s\n%q\nalone\n%q", test.policy, got, alone)
			}
			s.settled()
			f := s.fleet().total()
			if f.Placements["shadow"] != test.placed || sum(f.Placements) != test.placed {
				t.Errorf("placements = %v, want %d and all for shadow", f.Placements, test.placed)
			}
			if got := s.shadow().Placements; got["same"]+got["other"] != sum(f.Placements) {
				t.Errorf("compared %v, want all of %v", got, f.Placements)
			}
		})
	}
}

// What is busy by one policy's measure is left by it, whatever this one would do:
// the home of a session, with all that it has cached. The difference is counted,
// logged and shown.
func TestShadowCountsDifferences(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s, log := startLogged(t, fmt.Sprintf(policySite, addresses(upstreams), shadowing("least_conn"), ""))
	prompt := words("conversation", 20_000)
	first := chat(prompt)
	tokens := estimate(first)

	home := open(t, s, upstreams, first, "X-Session-ID", "s")
	home.show(s)
	if got := s.shadow(); got.Placements["same"]+got.Placements["other"] != 1 || got.PrefillTokens["saved"] != 0 {
		t.Errorf("after a cold prompt = %+v, want one compared and nothing saved", got)
	}
	before := s.shadow()
	second := turn(t, s, upstreams, conversation(prompt, "yes", "and"), "X-Session-ID", "s")
	if second == home.at {
		t.Fatal("least_conn has chosen the busier upstream")
	}
	got := s.shadow()
	if got.Placements["other"] != before.Placements["other"]+1 {
		t.Errorf("choices = %v, want one more other than %v", got.Placements, before.Placements)
	}
	if saved := got.PrefillTokens["saved"]; saved < float64(tokens-300) || saved > float64(tokens) {
		t.Errorf("tokens saved = %v, want about the %d of the first prompt", saved, tokens)
	}
	if saved := got.CostTokens["saved"] - before.CostTokens["saved"]; saved < 10_000 {
		t.Errorf("cost saved = %v, want what the tokens are worth", saved)
	}
	for name, want := range map[string]float64{
		`shadow_placements_total{choice="other"`:         float64(got.Placements["other"]),
		`shadow_prefill_tokens_total{difference="saved"`: got.PrefillTokens["saved"],
		`shadow_cost_tokens_total{difference="saved"`:    got.CostTokens["saved"],
	} {
		line := fmt.Sprintf("caddy_llm_loadaware_%s,fleet=\"default\"} %v\n", name, want)
		if _, text := s.get("/metrics"); !strings.Contains(text, line) {
			t.Errorf("metrics have no %s %v", name, want)
		}
	}
	home.end()
	s.settled()

	record := log.access(2)[0]["llm_loadaware"].(map[string]any)
	if record["reason"] != "shadow" || record["upstream"] != second.address() ||
		record["shadow_upstream"] != home.at.address() || record["shadow_reason"] != "pinned" {
		t.Errorf("log = %v, want it on %s, and pinned to %s in the shadow", record, second.address(), home.at.address())
	}
	_, text := s.get("/llm_loadaware/fleets/default/placements?limit=1")
	var placements []struct {
		Reason, Upstream string
		Shadow           struct{ Reason, Upstream string }
		Upstreams        []struct {
			Upstream string
			Cost     float64
		}
	}
	if err := json.Unmarshal([]byte(text), &placements); err != nil || len(placements) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if p := placements[0]; p.Reason != "shadow" || p.Upstream != second.address() || p.Shadow.Reason != "pinned" ||
		p.Shadow.Upstream != home.at.address() || len(p.Upstreams) != 2 {
		t.Errorf("placement = %s", text)
	}
}

// A policy may choose what is not available, and what has left.
func TestShadowOfUnavailable(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(policySite, addresses(upstreams), shadowing("test_obedient"), "unhealthy_request_count 1"))
	to := upstreams[1]
	held := open(t, s, upstreams, chat("first"), "X-Upstream", to.address())
	to.setAnswer(answerAtOnce)
	if status, text := exchange(t, s.sites[0], chatPath, chat("second"), "X-Upstream", to.address()); status != http.StatusOK {
		t.Errorf("status %d: %s", status, text)
	}
	if got := s.shadow().Placements; got["other"] == 0 || got["same"]+got["other"] != 2 {
		t.Errorf("choices = %v, want both compared, and the second with the other upstream", got)
	}
	held.show(s)
	held.end()
	s.settled()
}

// The change from one policy to this one is a reload: what was placed before is
// known, what is in flight stays counted, and sessions stay where they are.
func TestReloadOutOfTheShadow(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(policySite, addresses(upstreams), shadowing("round_robin"), ""))
	const sessions = 6
	session := func(i int) string { return fmt.Sprint("session ", i) }
	homes := make([]*upstream, sessions)
	for i := range homes {
		homes[i] = turn(t, s, upstreams, chat(words(session(i), 3000)), "X-Session-ID", session(i))
	}
	running := open(t, s, upstreams, chat(words("running", 3000)))
	before := s.fleet()
	if err := s.reload(fmt.Sprintf(policySite, addresses(upstreams), "llm_loadaware", "")); err != nil {
		t.Fatal(err)
	}
	s.accepts()
	eventually(t, func() bool { return s.inFlight() == 1 }, func() string { return "more than the running request is counted" })
	s.shows(t, "out of the shadow", before)
	running.show(s)
	choices := s.shadow().Placements
	for i, home := range homes {
		if got := turn(t, s, upstreams, conversation(words(session(i), 3000), "yes", "and"), "X-Session-ID", session(i)); got != home {
			t.Errorf("session %d goes to %s, want its home %s", i, got.address(), home.address())
		}
	}
	after := s.fleet().total()
	if got := since(before.total().Placements, after.Placements); got["pinned"] != sessions || sum(got) != sessions {
		t.Errorf("placements after the reload = %v, want %d pinned", got, sessions)
	}
	if got := s.shadow().Placements; got["same"] != choices["same"] || got["other"] != choices["other"] {
		t.Errorf("choices = %v after the reload, want still %v", got, choices)
	}
	// and back
	if err := s.reload(fmt.Sprintf(policySite, addresses(upstreams), shadowing("first"), "")); err != nil {
		t.Fatal(err)
	}
	others := counts(upstreams)[1:]
	for range 3 {
		s.accepts()
	}
	if got := counts(upstreams)[1:]; !slices.Equal(got, others) {
		t.Errorf("after the second reload the others have received %d requests, before %d", got, others)
	}
	running.end()
	s.settled()
}

// A client that leaves while its request waits at the chosen upstream.
func TestShadowReleases(t *testing.T) {
	st := newStage()
	u := newUpstream(t, st.answer)
	s := start(t, fmt.Sprintf(policySite, u.address(), shadowing("random"), ""))
	ctx, leave := context.WithCancel(t.Context())
	res, err := send(ctx, s.sites[0], chatPath, chat(words("gone", 2000)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := s.fleet().total(); got.RequestsInFlight != 1 || got.PrefillTokens < 1900 {
		t.Errorf("fleet = %+v, want one request with its tokens", got)
	}
	leave()
	s.settled()
	if got := nonzero(s.fleet().total().Releases); got["canceled"] != 1 || sum(got) != 1 {
		t.Errorf("releases = %v, want one canceled", got)
	}
}

// What is wrong with a shadow as a whole is told with its line.
func TestBadShadow(t *testing.T) {
	for _, test := range []struct{ name, text, names string }{
		{"a queue after it", "shadow first\nqueue {\nmax_requests 1\n}", "queue"},
		{"a queue before it", "queue {\nmax_requests 1\n}\nshadow first", "queue"},
		{"no policy", "shadow", "shadow"},
		{"no selector", "shadow test_no_selector", "not a reverseproxy.Selector"},
		{"itself", "shadow llm_loadaware", "another policy"},
		{"an unknown option of the policy", "shadow header X-One {\nnonsense 1\n}", "nonsense"},
		{"twice", "shadow first\nshadow first", "shadow already specified"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused(t, ":80 {\n\treverse_proxy a:1 {\n\t\tlb_policy llm_loadaware {\n"+test.text+"\n}\n}\n}\n", test.names, 4, 5, 6, 7)
		})
	}
}

// Interface guards
var (
	_ caddyfile.Unmarshaler = (*noSelector)(nil)
	_ reverseproxy.Selector = (*obedient)(nil)
)
