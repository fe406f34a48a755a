// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/prompts"
)

// estimate is what a chat with this body is charged.
func estimate(body string) int {
	e, _ := prompts.Lookup(chatPath)
	return e.Read([]byte(body), true, "application/json", prompts.Limits{}).Tokens
}

// metric adds up the series of one metric of the default fleet.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	_, text := s.get("/metrics")
	var sum float64
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, "caddy_llm_loadaware_"+name+`{fleet="default"`)
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndex(rest, " "):]), 64)
		if err != nil {
			s.t.Fatalf("metric %q: %v", line, err)
		}
		sum += value
	}
	return sum
}

// The handler stands once at the level of the site; wherever the proxy is, each
// request is read, placed and ended once.
func TestShapes(t *testing.T) {
	const proxy = "reverse_proxy {upstreams} {\n lb_policy llm_loadaware\n}\n"
	for _, test := range []struct {
		name, site string
		prefix     string

		// unseen says that the response passes no handler
		unseen bool
	}{
		{name: "beside", site: "llm_loadaware\n" + proxy},
		{name: "written after", site: proxy + "llm_loadaware\n"},
		{name: "handle", site: "llm_loadaware\nhandle /v1/* {\n" + proxy + "}\n"},
		{name: "handle_path", site: "llm_loadaware\nhandle_path /openai/* {\n" + proxy + "}\n", prefix: "/openai"},
		{name: "route", site: "llm_loadaware\nroute {\n" + proxy + "}\n"},
		{name: "handler in the route", site: "route {\nllm_loadaware\n" + proxy + "}\n"},
		{name: "invoke", site: "llm_loadaware\ninvoke proxied\n"},
		{name: "handle_errors", site: "llm_loadaware\nerror 503\nhandle_errors {\n" + proxy + "}\n", unseen: true},
		{name: "handle_errors with a handler", site: "llm_loadaware\nerror 503\nhandle_errors {\nllm_loadaware\n" + proxy + "}\n"},
		{name: "handle_errors after a dead proxy", site: "llm_loadaware\nreverse_proxy {dead}\nhandle_errors {\n" + proxy + "}\n", unseen: true},
		{name: "forward_auth", site: "forward_auth {auth} {\nuri /auth\n}\nllm_loadaware\n" + proxy},
		{name: "forward_auth inside", site: "route {\nllm_loadaware\nforward_auth {auth} {\nuri /auth\n}\n" + proxy + "}\n"},
		{name: "encode", site: "encode gzip\nllm_loadaware\n" + proxy},
		{name: "encode inside", site: "route {\nllm_loadaware\nencode gzip\n" + proxy + "}\n"},
		{name: "intercept", site: "intercept {\n@error status 5xx\nhandle_response @error {\nrespond replaced 502\n}\n}\nllm_loadaware\n" + proxy},
		{name: "nested", site: "llm_loadaware\nhandle {\nllm_loadaware {\nmax_body 1B\n}\n" + proxy + "}\n"},
		{name: "path matcher", site: "llm_loadaware /v1/*\n" + proxy},
		{name: "named matcher", site: "@post method POST\nllm_loadaware @post\n" + proxy},
		{name: "log", site: "log {\noutput discard\n}\nllm_loadaware\n" + proxy},
		{name: "response route", site: "llm_loadaware\nreverse_proxy {auth} {\n@ok status 2xx\nhandle_response @ok {\n" + proxy + "}\n}\n"},
		{name: "map and vars", site: "map {path} {kind} {\ndefault x\n}\nvars a b\nllm_loadaware\n" + proxy},
		{name: "request_body", site: "request_body {\nmax_size 10MB\n}\nllm_loadaware\n" + proxy},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, answerAtOnce)
			auth := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
			fill := strings.NewReplacer("{upstreams}", addresses(upstreams), "{auth}", auth.address()).Replace
			s := start(t, fill("&(proxied) {\n"+proxy+"}\n{site0} {\n"+test.site+"}\n"))

			path := test.prefix + chatPath
			first := words("first turn", 2000)
			turns := []struct{ body, session string }{
				{conversation(first), "s"},
				{conversation(first, "answer", words("more", 100)), "s"},
				{conversation(words("no session", 700)), ""},
				{conversation(first, "answer", words("more", 100), "answer", "last"), "s"},
			}
			tokens := 0
			var home *upstream
			for i, turn := range turns {
				var header []string
				if turn.session != "" {
					header = []string{"X-Session-ID", turn.session}
				}
				before := counts(upstreams)
				if status, text := exchange(t, s.sites[0], path, turn.body, header...); status != http.StatusOK {
					t.Fatalf("turn %d: status %d: %s", i, status, text)
				}
				tokens += estimate(turn.body)
				for j, u := range upstreams {
					if u.count() == before[j] {
						continue
					}
					if got := u.last().body; got != turn.body {
						t.Errorf("turn %d: received %d other bytes, want the %d that were sent", i, len(got), len(turn.body))
					}
					if got := u.last().path; got != chatPath {
						t.Errorf("turn %d: path = %q, want %q", i, got, chatPath)
					}
					if turn.session != "" && home != nil && home != u {
						t.Errorf("turn %d left the session's home", i)
					}
					if turn.session != "" {
						home = u
					}
				}
			}
			s.settled()
			sums := s.fleet().total()
			if got := total(counts(upstreams)); got != len(turns) {
				t.Errorf("requests at the upstreams = %d, want %d", got, len(turns))
			}
			if p := sums.Placements; p["new"] != 1 || p["pinned"] != 2 || sum(p) != len(turns) {
				t.Errorf("placements = %v, want 1 new, 2 pinned and %d in all", p, len(turns))
			}
			cause := "first_output"
			if test.unseen {
				cause = "end"
			}
			if r := sums.Releases; r[cause] != len(turns) || sum(r) != len(turns) {
				t.Errorf("releases = %v, want %d by %s", r, len(turns), cause)
			}
			if got := s.metric("prompt_tokens_estimated_total"); got != float64(tokens) {
				t.Errorf("prompt tokens = %v, want %d", got, tokens)
			}
			// the last turn of the session has little that is not cached
			if got, most := s.metric("prefill_tokens_estimated_total"), float64(2000+700+2*400); got > most {
				t.Errorf("prefill tokens = %v, want at most %v", got, most)
			}
		})
	}
}

// What intercept makes of a response is between it and the client.
func TestInterceptedError(t *testing.T) {
	u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		flush(w) // intercept keeps a Content-Length for what it puts in its place
	})
	s := start(t, fmt.Sprintf(`
{site0} {
	intercept {
		@error status 5xx
		handle_response @error {
			respond replaced 418
		}
	}
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
`, u.address()))
	if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusTeapot || text != "replaced" {
		t.Errorf("status %d: %s, want 418: replaced", status, text)
	}
	s.settled()
	if got := s.fleet().total().Releases; got["error"] != 1 || sum(got) != 1 {
		t.Errorf("releases = %v, want 1 by an error", got)
	}
}

// A site-level handler leaves what its matcher does not match to the policy.
func TestHandlerThatDoesNotMatch(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(`
{site0} {
	llm_loadaware /other/*
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
`, u.address()))
	body := chat(words("unread", 1000))
	if status, text := exchange(t, s.sites[0], chatPath, body); status != http.StatusOK {
		t.Fatalf("status %d: %s", status, text)
	}
	s.settled()
	if got, want := s.metric("prompt_tokens_estimated_total"), float64(len(body)/4); got != want {
		t.Errorf("prompt tokens = %v, want the size of the body %v", got, want)
	}
	if got := u.last().body; got != body {
		t.Errorf("received %d other bytes, want the %d that were sent", len(got), len(body))
	}
}

// startLogged runs Caddy with everything logged to a file.
func startLogged(t *testing.T, caddyfile string) (*server, *logFile) {
	t.Helper()
	log := &logFile{t, filepath.Join(t.TempDir(), "log")}
	s := newServer(t)
	var config map[string]any
	if err := json.Unmarshal(s.adapt(caddyfile), &config); err != nil {
		t.Fatal(err)
	}
	config["logging"].(map[string]any)["logs"].(map[string]any)["file"] = map[string]any{
		"writer":  map[string]string{"output": "file", "filename": log.path},
		"encoder": map[string]string{"format": "json"},
		"level":   "DEBUG",
	}
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	s.run(text)
	return s, log
}

// logFile is a log of JSON lines.
type logFile struct {
	t    *testing.T
	path string
}

// entries returns what satisfies a condition.
func (l *logFile) entries(which func(map[string]any) bool) []map[string]any {
	l.t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	var list []map[string]any
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return list // an unfinished line is for the next time
		}
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			l.t.Fatalf("log line %q: %v", line, err)
		}
		if which(entry) {
			list = append(list, entry)
		}
	}
}

// access waits for n lines of the access log.
func (l *logFile) access(n int) []map[string]any {
	l.t.Helper()
	var got []map[string]any
	eventually(l.t, func() bool {
		got = l.entries(func(e map[string]any) bool {
			name, _ := e["logger"].(string)
			return strings.HasPrefix(name, "http.log.access")
		})
		return len(got) >= n
	}, func() string { return fmt.Sprintf("%d access log lines, want %d", len(got), n) })
	return got
}

func TestPolicyWithoutHandler(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s, log := startLogged(t, fmt.Sprintf(`
{site0} {
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
`, addresses(upstreams)))

	var home *upstream
	for i := range 20 {
		at := turn(t, s, upstreams, chat(words("pinned", 500+i)), "X-Session-ID", "s")
		if home != nil && at != home {
			t.Errorf("request %d left the session's home", i)
		}
		home = at
		// the request's context ends after the client has the response
		s.settled()
	}
	if got := s.fleet().total().Placements; got["new"] != 1 || got["pinned"] != 19 {
		t.Errorf("placements = %v, want 1 new and 19 pinned", got)
	}

	// three requests without output hold what their size says, until they end
	var open3 []*stream
	seen := map[*upstream]bool{}
	body := chat(words("open", 5000))
	for range 3 {
		st := open(t, s, upstreams, body)
		open3, seen[st.at] = append(open3, st), true
		if got := s.fleet().of(st.at); got.RequestsInFlight != 1 || got.PrefillTokens != len(body)/4 {
			t.Errorf("placed: %+v, want 1 request and %d tokens", got, len(body)/4)
		}
	}
	if len(seen) != 3 {
		t.Errorf("3 requests went to %d upstreams, want 3", len(seen))
	}
	for _, st := range open3 {
		close(st.stage.output)
		st.end()
	}
	s.settled()

	// and until their client has left
	held := newStage()
	for _, u := range upstreams {
		u.setAnswer(held.answer)
	}
	ctx, leave := context.WithCancel(t.Context())
	res, err := send(ctx, s.sites[0], chatPath, body)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.fleet().total(); got.RequestsInFlight != 1 || got.PrefillTokens != len(body)/4 {
		t.Errorf("in the middle: %+v, want 1 request and %d tokens", got, len(body)/4)
	}
	leave()
	res.Body.Close()
	s.settled()

	warnings := log.entries(func(e map[string]any) bool {
		msg, _ := e["msg"].(string)
		return e["level"] == "warn" && strings.Contains(msg, "llm_loadaware handler is missing")
	})
	if len(warnings) != 1 {
		t.Errorf("%d warnings that the handler is missing, want 1: %v", len(warnings), warnings)
	}
}

// Without a handler a retry sends what Caddy itself can send again.
func TestPolicyWithoutHandlerRetries(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(`
{site0} {
	reverse_proxy {dead} %s {
		lb_policy llm_loadaware
		lb_retries 1
	}
}
`, u.address()))
	for range 4 {
		if status, text := exchange(t, s.sites[0], chatPath, oddBody); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		if got := u.last().body; got != oddBody {
			t.Errorf("received %q, want %q", got, oddBody)
		}
	}
	s.settled()
	if got := s.fleet().total().Releases; got["retried"] == 0 {
		t.Errorf("releases = %v, want some by a retry", got)
	}
}

// placeholders are those that are set from the placement on.
var placeholders = []string{"reason", "upstream", "model", "prompt_tokens", "uncached_tokens", "session", "attempts"}

// placeholderConfig shows every placeholder in every place where it can be used.
func placeholderConfig(upstreams string) string {
	var header, up, down, logged strings.Builder
	for _, name := range placeholders {
		field := strings.ReplaceAll(name, "_", "-")
		fmt.Fprintf(&header, "header >X-Late-%s {http.llm_loadaware.%s}\n", field, name)
		fmt.Fprintf(&up, "header_up X-Up-%s {http.llm_loadaware.%s}\n", field, name)
		fmt.Fprintf(&down, "header_down X-Down-%s {http.llm_loadaware.%s}\n", field, name)
		fmt.Fprintf(&logged, "log_append own_%s {http.llm_loadaware.%s}\n", name, name)
	}
	return "{site0} {\nlog\nllm_loadaware\n" + header.String() + logged.String() +
		"log_append own_first_output_ms {http.llm_loadaware.first_output_ms}\n" +
		"reverse_proxy " + upstreams + " {\nlb_policy llm_loadaware\n" + retry503 + up.String() + down.String() + "}\n}\n"
}

func TestPlaceholders(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s, log := startLogged(t, placeholderConfig(addresses(upstreams)))
	body := chat(words("placeholders", 1000))
	tokens := fmt.Sprint(estimate(body))
	session := ""
	for i, want := range []map[string]string{
		{"reason": "new", "model": "m", "prompt_tokens": tokens, "uncached_tokens": tokens, "attempts": "1"},
		{"reason": "pinned", "model": "m", "prompt_tokens": tokens, "attempts": "1"},
		{"reason": "moved_unavailable", "model": "m", "prompt_tokens": tokens, "uncached_tokens": tokens, "attempts": "2"},
	} {
		if i == 2 {
			for _, u := range upstreams {
				if u.count() > 0 {
					u.setAnswer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
				}
			}
		}
		before := counts(upstreams)
		res, err := send(t.Context(), s.sites[0], chatPath, body, "X-Session-ID", "s")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		entry := log.access(i + 1)[i]
		record, ok := entry["llm_loadaware"].(map[string]any)
		if !ok {
			t.Fatalf("request %d: access log has no field llm_loadaware: %v", i, entry)
		}
		for j, u := range upstreams {
			if u.count() > before[j] && (i < 2 || j == other(upstreams, before)) {
				want["upstream"] = u.address()
			}
		}
		at := upstreams[0]
		if at.address() != want["upstream"] {
			at = upstreams[1]
		}
		if session == "" {
			session = res.Header.Get("X-Late-Session")
			if len(session) != 8 {
				t.Errorf("session = %q, want 8 digits", session)
			}
		}
		want["session"] = session
		for _, name := range placeholders {
			value, ok := want[name]
			if !ok {
				continue
			}
			field := strings.ReplaceAll(name, "_", "-")
			for where, got := range map[string]string{
				"header":      res.Header.Get("X-Late-" + field),
				"header_up":   at.last().header.Get("X-Up-" + field),
				"header_down": res.Header.Get("X-Down-" + field),
				"log_append":  fmt.Sprint(entry["own_"+name]),
				"access log":  fmt.Sprint(record[name]),
			} {
				if got != value {
					t.Errorf("request %d: %s in %s = %q, want %q", i, name, where, got, value)
				}
			}
		}
		for name, got := range map[string]any{"log_append": entry["own_first_output_ms"], "access log": record["first_output_ms"]} {
			if ms, ok := got.(float64); !ok || ms <= 0 {
				t.Errorf("request %d: first_output_ms in %s = %v, want a time", i, name, got)
			}
		}
	}
	s.settled()
}

// other is the upstream that had no request yet.
func other(upstreams []*upstream, before []int) int {
	for i := range upstreams {
		if before[i] == 0 {
			return i
		}
	}
	return -1
}

// An upstream that dies in the middle of a stream aborts the handlers, and the
// access log has the record all the same.
func TestLogOfAbortedStream(t *testing.T) {
	for _, test := range []struct {
		name   string
		output bool
	}{{"after output", true}, {"before output", false}} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				if test.output {
					io.WriteString(w, "data: {\"choices\":[]}\n\n")
				} else {
					io.WriteString(w, ": ping\n\n")
				}
				flush(w)
				panic(http.ErrAbortHandler)
			})
			s, log := startLogged(t, placeholderConfig(u.address()))
			res, err := send(t.Context(), s.sites[0], chatPath, chat("hello"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if _, err := io.ReadAll(res.Body); err == nil {
				t.Error("the stream was not aborted")
			}
			record, ok := log.access(1)[0]["llm_loadaware"].(map[string]any)
			if !ok {
				t.Fatal("access log has no field llm_loadaware")
			}
			if record["upstream"] != u.address() || record["reason"] != "load" {
				t.Errorf("record = %v, want the upstream and the reason load", record)
			}
			if _, ok := record["first_output_ms"]; ok != test.output {
				t.Errorf("record = %v, want first_output_ms: %v", record, test.output)
			}
			s.settled()
			cause := map[bool]string{true: "first_output", false: "error"}[test.output]
			if got := s.fleet().total().Releases; got[cause] != 1 || sum(got) != 1 {
				t.Errorf("releases = %v, want 1 by %s", got, cause)
			}
		})
	}
}

// What names a session is the client's secret.
func TestSessionIsNotShown(t *testing.T) {
	const secret = "very-secret-session"
	u := newUpstream(t, answerAtOnce)
	s, log := startLogged(t, placeholderConfig(u.address()))
	inBody := strings.TrimSuffix(chat("hello"), "}") + `,"prompt_cache_key":"` + secret + `"}`
	held := newStage()
	exchange(t, s.sites[0], chatPath, chat("hello"), "X-Session-ID", secret)
	exchange(t, s.sites[0], chatPath, inBody)
	u.setAnswer(held.answer)
	res, err := send(t.Context(), s.sites[0], chatPath, inBody)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	shown := []string{"/llm_loadaware/fleets", "/llm_loadaware/fleets/default", "/metrics"}
	for _, path := range shown {
		if _, text := s.get(path); strings.Contains(text, secret) {
			t.Errorf("%s shows the session", path)
		}
	}
	close(held.output)
	close(held.end)
	_, _ = io.Copy(io.Discard, res.Body)
	s.settled()
	if got := s.fleet().Sessions; got == 0 {
		t.Error("no session is remembered")
	}
	for _, path := range shown {
		if _, text := s.get(path); strings.Contains(text, secret) {
			t.Errorf("%s shows the session", path)
		}
	}
	log.access(3)
	for _, entry := range log.entries(func(map[string]any) bool { return true }) {
		entry = maps.Clone(entry)
		// Caddy itself logs the headers of requests
		if request, ok := entry["request"].(map[string]any); ok {
			delete(request, "headers")
		}
		if text, _ := json.Marshal(entry); strings.Contains(string(text), secret) {
			t.Errorf("log shows the session: %s", text)
		}
	}
}
