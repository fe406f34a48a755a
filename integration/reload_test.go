// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// running is a stream that goes on while configurations come and go.
type running struct {
	stage   *stage
	res     *http.Response
	at      *upstream
	session string
	prompt  string
}

// run begins n streams, each in a session of its own, and lets every second one
// show its first output.
func run(t *testing.T, s *server, upstreams []*upstream, n int) []*running {
	t.Helper()
	var list []*running
	for i := range n {
		r := &running{stage: newStage(), session: fmt.Sprint("session ", i), prompt: words(fmt.Sprint("stream ", i), 2000)}
		before := counts(upstreams)
		for _, u := range upstreams {
			u.setAnswer(r.stage.answer)
		}
		r.res = begin(t, s.sites[0], chatPath, chat(r.prompt), "X-Session-ID", r.session)
		for k, u := range upstreams {
			if u.count() > before[k] {
				r.at = u
			}
		}
		if i%2 == 0 {
			close(r.stage.output)
			if _, err := io.ReadFull(r.res.Body, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, r)
	}
	return list
}

// end lets every stream go on to its end, and checks that clients get it.
func end(t *testing.T, list []*running) {
	t.Helper()
	for i, r := range list {
		if i%2 != 0 {
			close(r.stage.output)
		}
		close(r.stage.end)
		if text := rest(t, r.res); !strings.HasSuffix(text, "data: [DONE]\n\n") {
			t.Errorf("stream %d ends %q", i, text)
		}
	}
}

// reloadable is a site with the upstreams and an option of the policy.
const reloadable = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			stickiness 1000000
			%s
		}
	}
}
%s
`

// series matches the samples that have no labels but fleet and upstream.
var series = regexp.MustCompile(`(?m)^caddy_llm_loadaware_(\w+)\{fleet="default",upstream="([^"]+)"\} (\S+)$`)

// exported returns the values of a metric without labels of its own, by
// upstream.
func exported(text, name string) map[string]int {
	values := map[string]int{}
	for _, m := range series.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.ParseFloat(m[3], 64); err == nil && m[1] == name {
			values[m[2]] = int(n)
		}
	}
	return values
}

// shows checks that /metrics has the same as the admin view.
func (s *server) shows(t *testing.T, when string, f fleetStatus) {
	t.Helper()
	status, text := s.get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("%s: GET /metrics: status %d", when, status)
	}
	want := map[string]map[string]int{}
	add := func(name, upstream string, n int) {
		if want[name] == nil {
			want[name] = map[string]int{}
		}
		want[name][upstream] = n
	}
	for _, u := range f.Upstreams {
		add("requests_in_flight", u.Upstream, u.RequestsInFlight)
		add("requests_waiting", u.Upstream, u.RequestsWaiting)
		add("prefill_tokens", u.Upstream, u.PrefillTokens)
		add("sessions", u.Upstream, u.Sessions)
		add("prefix_blocks", u.Upstream, u.PrefixBlocks)
	}
	for name, values := range want {
		if got := exported(text, name); !maps.Equal(got, values) {
			t.Errorf("%s: /metrics has %s = %v, want %v", when, name, got, values)
		}
	}
}

// A router that looks for its workers again began to count from 0 while streams
// ran.
//
// Whatever is loaded while streams run, they go on, they stay counted, and
// sessions and index stay as they are. Caddy shuts the old servers down without
// closing connections that are in use, so it is up to the plugin.
func TestCaseC31ReloadKeepsCounts(t *testing.T) {
	const force = "must-revalidate"
	occupied, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupied.Close()

	json := func(s *server, body, from, to string) string {
		config := string(s.adapt(body))
		if !strings.Contains(config, from) {
			t.Fatalf("config has no %s: %s", from, config)
		}
		return strings.Replace(config, from, to, 1)
	}
	tests := []struct {
		name string
		// reload loads something; body is the Caddyfile that runs
		reload func(s *server, body string, upstreams []*upstream, list []*running) error
		fails  bool
	}{
		{"the same", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reload(body)
		}, false},
		{"the same, forced", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reload(body, "Cache-Control", force)
		}, false},
		{"another option", func(s *server, _ string, upstreams []*upstream, _ []*running) error {
			return s.reload(fmt.Sprintf(reloadable, addresses(upstreams), "congestion 1", ""))
		}, false},
		{"another upstream", func(s *server, _ string, upstreams []*upstream, _ []*running) error {
			return s.reload(fmt.Sprintf(reloadable, addresses(upstreams)+" "+s.sites[2], "", ""))
		}, false},
		{"an upstream less", func(s *server, _ string, upstreams []*upstream, list []*running) error {
			var left []*upstream
			for _, u := range upstreams {
				if u != list[0].at {
					left = append(left, u)
				}
			}
			return s.reload(fmt.Sprintf(reloadable, addresses(left), "", ""))
		}, false},
		{"without the policy", func(s *server, _ string, _ []*upstream, _ []*running) error {
			// another site keeps the fleet only through its streams
			return s.reload("{site0} {\nrespond hello\n}\n")
		}, false},
		{"twenty times", func(s *server, body string, upstreams []*upstream, _ []*running) error {
			for i := range 20 {
				if err := s.reload(fmt.Sprintf(reloadable, addresses(upstreams), fmt.Sprint("request_cost ", 4000+i), "")); err != nil {
					return err
				}
			}
			return s.reload(body)
		}, false},
		{"failing and working in turn", func(s *server, body string, _ []*upstream, _ []*running) error {
			for range 5 {
				if err := s.reloadJSON(json(s, body, `"stickiness":1000000`, `"stickiness":-1`)); err == nil {
					return fmt.Errorf("a negative stickiness was loaded")
				}
				if err := s.reload(body, "Cache-Control", force); err != nil {
					return err
				}
			}
			return nil
		}, false},
		{"failing in the policy", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `"stickiness":1000000`, `"max_sessions":-1`))
		}, true},
		{"failing in the handler", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `{"handler":"llm_loadaware"}`, `{"handler":"llm_loadaware","max_body":-1}`))
		}, true},
		{"failing before the policy", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `{"handler":"llm_loadaware"}`, `{"handler":"nothing of that name"}`))
		}, true},
		{"failing after the policy", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `"handler":"reverse_proxy"`, `"handler":"reverse_proxy","health_checks":{"active":{"uri":"/","expect_body":"("}}`))
		}, true},
		{"failing in another app", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `"apps":{`, `"apps":{"nothing of that name":{},`))
		}, true},
		{"failing before every module", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reloadJSON(json(s, body, `"apps":{`, `"storage":{"module":"nothing of that name"},"apps":{`))
		}, true},
		{"failing at the start", func(s *server, body string, _ []*upstream, _ []*running) error {
			return s.reload(body + "http://" + occupied.Addr().String() + " {\n" +
				"llm_loadaware\nreverse_proxy 127.0.0.1:9 {\nlb_policy llm_loadaware\n}\n}\n")
		}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, nil)
			body := fmt.Sprintf(reloadable, addresses(upstreams), "", "")
			s := start(t, body)
			list := run(t, s, upstreams, 10)
			before := s.fleet()
			if sums := before.total(); sums.RequestsInFlight != 10 || sums.RequestsWaiting != 5 || sums.Sessions != 10 {
				t.Fatalf("before: %+v", before)
			}

			err := test.reload(s, body, upstreams, list)
			if failed := err != nil; failed != test.fails {
				t.Fatalf("reload: %v, want failure %v", err, test.fails)
			}
			after := s.fleet()
			for _, u := range before.Upstreams {
				var got upstreamStatus
				for _, a := range after.Upstreams {
					if a.Upstream == u.Upstream {
						got = a
					}
				}
				if !reflect.DeepEqual(got, u) {
					t.Errorf("after the reload: %+v, want %+v", got, u)
				}
			}
			if after.Sessions != before.Sessions {
				t.Errorf("sessions after the reload = %d, want %d", after.Sessions, before.Sessions)
			}
			s.shows(t, "after the reload", after)

			// the sessions are where they were, also those whose stream runs on;
			// the original config is loaded again where it is not running
			if err := s.reload(body); err != nil {
				t.Fatal(err)
			}
			s.accepts()
			for _, r := range list[:3] {
				if got := turn(t, s, upstreams, conversation(r.prompt, "answer", "more"), "X-Session-ID", r.session); got != r.at {
					t.Errorf("%s left its home", r.session)
				}
			}
			end(t, list)
			s.settled()
			s.shows(t, "at the end", s.fleet())
			if got := s.fleet().total(); got.Placements["pinned"] != 3 || got.Releases["first_output"] != 13 {
				t.Errorf("at the end: placements %v, releases %v", got.Placements, got.Releases)
			}
		})
	}
}

// A fleet is there as long as a loaded policy or a stream refers to it.
func TestFleetEndsWithLastStream(t *testing.T) {
	for _, test := range []struct {
		name   string
		reload func(s *server, upstreams []*upstream) error
	}{
		{"no config", func(s *server, _ []*upstream) error {
			return s.reloadJSON(fmt.Sprintf(`{"admin":{"listen":%q},"logging":{"logs":{"default":{"writer":{"output":"discard"}}}}}`, s.admin))
		}},
		{"another fleet", func(s *server, upstreams []*upstream) error {
			return s.reload(fmt.Sprintf(reloadable, addresses(upstreams), "fleet other", ""))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, nil)
			s := start(t, fmt.Sprintf(reloadable, addresses(upstreams), "", ""))
			list := run(t, s, upstreams, 4)
			before := s.fleet()

			if err := test.reload(s, upstreams); err != nil {
				t.Fatal(err)
			}
			if after := s.fleet(); !reflect.DeepEqual(after, before) {
				t.Errorf("without its policy the fleet is %+v, want %+v", after, before)
			}
			s.shows(t, "without its policy", before)
			end(t, list[:3])
			eventually(t, func() bool { return s.fleet().total().RequestsInFlight == 1 },
				func() string { return fmt.Sprintf("fleet = %+v, want one request in flight", s.fleet()) })
			end(t, []*running{{stage: withOutput(list[3].stage), res: list[3].res}})
			eventually(t, func() bool { status, _ := s.get("/llm_loadaware/fleets/default"); return status == http.StatusNotFound },
				func() string { return "fleet is still there after its last stream" })
			_, text := s.get("/metrics")
			if got := exported(text, "requests_in_flight"); len(got) != 0 {
				t.Errorf("/metrics has %v of the fleet that is gone", got)
			}
		})
	}
}

// withOutput makes a stage that waits for its first output one that has shown
// it.
func withOutput(st *stage) *stage {
	close(st.output)
	return st
}

// A policy that is replaced and one that failed give nothing back twice: the
// fleet survives any number of them and goes with the last.
func TestReloadsLeaveNoReference(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	body := fmt.Sprintf(reloadable, up.address(), "", "")
	s := start(t, body)
	turn(t, s, []*upstream{up}, chat("hello"), "X-Session-ID", "s")
	for range 3 {
		if err := s.reload(body, "Cache-Control", "must-revalidate"); err != nil {
			t.Fatal(err)
		}
		bad := strings.Replace(string(s.adapt(body)), `"stickiness":1000000`, `"session_ttl":-1`, 1)
		if err := s.reloadJSON(bad); err == nil {
			t.Fatal("a negative session_ttl was loaded")
		}
	}
	s.settled()
	if got := s.fleet().Sessions; got != 1 {
		t.Errorf("sessions = %d, want 1", got)
	}
	if err := s.reload("{site0} {\nrespond hello\n}\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { status, _ := s.get("/llm_loadaware/fleets/default"); return status == http.StatusNotFound },
		func() string { return "fleet is still there without a policy" })
}

// Names, labels and types are what dashboards are built on.
func TestMetrics(t *testing.T) {
	upstreams := newUpstreams(t, 3, nil)
	s := start(t, fmt.Sprintf(reloadable, addresses(upstreams), "", ""))
	list := run(t, s, upstreams, 1)
	idle := upstreams[0].address()
	if list[0].at == upstreams[0] {
		idle = upstreams[1].address()
	}
	s.shows(t, "with a stream", s.fleet())
	if got := s.fleet().Upstreams; len(got) != 3 {
		t.Errorf("upstreams in view = %+v, want the three that are listed", got)
	}
	end(t, list)
	s.settled()

	_, text := s.get("/metrics")
	types := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE caddy_llm_loadaware_(\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		types[m[1]] = m[2]
	}
	if want := map[string]string{
		"requests_in_flight":             "gauge",
		"requests_waiting":               "gauge",
		"prefill_tokens":                 "gauge",
		"sessions":                       "gauge",
		"prefix_blocks":                  "gauge",
		"prompt_tokens_estimated_total":  "counter",
		"prefill_tokens_estimated_total": "counter",
		"placements_total":               "counter",
		"releases_total":                 "counter",
		"first_output_seconds":           "histogram",
		"upstream_state":                 "gauge",
		"requests_elsewhere":             "gauge",
		"peers_requests_in_flight":       "gauge",
		"peers_prefill_tokens":           "gauge",
		"prefix_belief":                  "gauge",
		"prompt_tokens_predicted_total":  "counter",
		"prompt_tokens_reported_total":   "counter",
		"cached_tokens_predicted_total":  "counter",
		"cached_tokens_reported_total":   "counter",
		"scrape_errors_total":            "counter",
		"queue_waiting":                  "gauge",
		"queue_rejected_total":           "counter",
		"queue_wait_seconds":             "histogram",
		"shadow_placements_total":        "counter",
		"shadow_prefill_tokens_total":    "counter",
		"shadow_cost_tokens_total":       "counter",
	}; !maps.Equal(types, want) {
		t.Errorf("types = %v, want %v", types, want)
	}
	for name := range types {
		if strings.HasPrefix(name, "queue_") || strings.HasPrefix(name, "shadow_") || name == "first_output_seconds" || name == "placements_total" || name == "releases_total" || name == "upstream_state" {
			continue
		}
		untouched := 0
		if name == "prefix_belief" {
			untouched = 1
		}
		got := exported(text, name)
		for _, u := range upstreams {
			if _, ok := got[u.address()]; !ok {
				t.Errorf("%s has no series for %s, only %v", name, u.address(), got)
			}
		}
		// these upstreams have no metrics, and were asked for them or not yet
		if got[idle] != untouched && name != "scrape_errors_total" {
			t.Errorf("%s of the upstream without traffic = %d, want %d", name, got[idle], untouched)
		}
	}

	// the sets of labels, whatever their order
	labels := map[string]map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "caddy_llm_loadaware_"), "{")
		if !ok || !strings.HasPrefix(line, "caddy_llm_loadaware_") {
			continue
		}
		if labels[name] == nil {
			labels[name] = map[string]bool{}
		}
		for _, m := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(rest, -1) {
			if m[1] == "fleet" && m[2] != "default" {
				t.Errorf("fleet = %q", m[2])
			}
			if m[1] == "reason" || m[1] == "cause" || m[1] == "state" {
				labels[name][m[1]+" "+m[2]] = true
				continue
			}
			labels[name][m[1]] = true
		}
	}
	set := func(names ...string) map[string]bool {
		s := map[string]bool{"fleet": true, "upstream": true}
		for _, name := range names {
			s[name] = true
		}
		return s
	}
	for name, want := range map[string]map[string]bool{
		"requests_in_flight":            set(),
		"prompt_tokens_estimated_total": set(),
		"placements_total": set("reason new", "reason pinned", "reason moved_pressure",
			"reason moved_unavailable", "reason prefix", "reason load", "reason shadow"),
		"releases_total": set("cause first_output", "cause end", "cause error", "cause canceled",
			"cause retried", "cause inferred", "cause expired"),
		"upstream_state": set("state available", "state full", "state cooling_down", "state suspect",
			"state asleep", "state drained"),
		"first_output_seconds_bucket": set("le"),
		"first_output_seconds_count":  set(),
	} {
		if !maps.Equal(labels[name], want) {
			t.Errorf("labels of %s = %v, want %v", name, labels[name], want)
		}
	}

	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "caddy_llm_loadaware_") {
			t.Errorf("promlint: %s: %s", p.Metric, p.Text)
		}
	}
}
