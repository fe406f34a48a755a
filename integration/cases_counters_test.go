// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// One transport of a router had no load tracking, and its instance saw nothing
// but health checks. Here a request is in flight over each.
func TestCaseC10EveryTransportIsCounted(t *testing.T) {
	st := newStage()
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			switchProtocols(w, r)
			return
		}
		st.answer(w, r)
	}
	upstreams := []*upstream{newRawUpstream(t, answer), newRawUpstream(t, answer), newRawUpstream(t, answer)}
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	counted := func(after string, want int) {
		t.Helper()
		if got := s.inFlight(); got != want {
			t.Errorf("in flight after %s = %d, want %d", after, got, want)
		}
		s.shows(t, after, s.fleet())
	}

	begin(t, s.sites[0], chatPath, chat("hello"))
	counted("HTTP/1.1", 1)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.sites[0]+"/v1/some/get", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := h2cClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	counted("HTTP/2", 2)

	conn, err := net.Dial("tcp", s.sites[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/realtime HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", s.sites[0])
	if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "101") {
		t.Fatalf("answer to the upgrade: %q, %v", line, err)
	}
	counted("a WebSocket", 3)
	for _, u := range upstreams {
		if got := s.fleet().of(u).RequestsInFlight; got != 1 {
			t.Errorf("an upstream has %d requests, want one on each", got)
		}
	}
	conn.Close()
	close(st.output)
	close(st.end)
	s.settled()
}

// A health checker set the counters of what was running back. Streams are held
// here over many probes of Caddy's health checks and of the policy.
func TestCaseC26ProbesKeepCounters(t *testing.T) {
	const streams = 5
	st := newStage()
	var checks, scrapes atomic.Int64
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health":
			checks.Add(1)
		case r.UserAgent() == scraperAgent:
			scrapes.Add(1)
			io.WriteString(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n")
		default:
			st.answer(w, r)
		}
	}))
	t.Cleanup(engine.Close)
	s := start(t, fmt.Sprintf(scraping, engine.Listener.Addr(), "", "", "health_uri /health\nhealth_interval 10ms"))
	var open []*http.Response
	for i := range streams {
		open = append(open, begin(t, s.sites[0], chatPath, chat(words(fmt.Sprint("stream ", i), 100))))
	}
	checks.Store(0)
	scrapes.Store(0)
	eventually(t, func() bool {
		if got := s.fleet().total(); got.RequestsInFlight != streams || got.RequestsWaiting != streams {
			t.Fatalf("after %d probes: %+v, want %d in flight and waiting", checks.Load(), got, streams)
		}
		return checks.Load() >= 20 && scrapes.Load() >= 3
	}, func() string { return fmt.Sprintf("%d health checks, %d scrapes", checks.Load(), scrapes.Load()) })
	close(st.output)
	close(st.end)
	for _, res := range open {
		_ = rest(t, res)
	}
	s.settled()
}

// What matched a prompt and what charged it were two parts that had come to
// disagree, so a cached prompt was charged in full.
func TestCaseD9WarmPromptReservesNothing(t *testing.T) {
	upstreams := newUpstreams(t, 2, answerAtOnce)
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	prompt := chat(words("warm", 20_000))
	cold := open(t, s, upstreams, prompt)
	if got := s.fleet().of(cold.at).PrefillTokens; got < 20_000 {
		t.Errorf("cold prompt reserves %d tokens, want at least 20000", got)
	}
	cold.show(s)
	cold.end()
	s.settled()
	warm := open(t, s, upstreams, prompt)
	if got := s.fleet().of(warm.at).PrefillTokens; warm.at != cold.at || got > 300 {
		t.Errorf("warm prompt reserves %d tokens, at the same upstream %v, want at most one block and there", got, warm.at == cold.at)
	}
	warm.show(s)
	warm.end()
	s.settled()
}

// Answers from a cache took from counters that they had not added to. With the
// counts below 0 and ties to the first, one deployment got nearly everything.
func TestCaseD10AnswersFromCacheAreNotCounted(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(`
{site0} {
	llm_loadaware
	@cached header X-Cached yes
	respond @cached "from the cache" 200
	reverse_proxy %s {
		lb_policy llm_loadaware
	}
}
`, addresses(upstreams)))
	for i := range 30 {
		body := chat(words(fmt.Sprint("cached ", i), 300))
		if _, text := exchange(t, s.sites[0], chatPath, body, "X-Cached", "yes"); text != "from the cache" {
			t.Fatalf("answer %q", text)
		}
		if got := s.fleet().total(); got.RequestsInFlight != 0 || got.PrefillTokens != 0 || sum(got.Placements) != i {
			t.Fatalf("after a cached answer: %+v, want nothing in flight and %d placements", got, i)
		}
		turn(t, s, upstreams, body)
	}
	for _, n := range counts(upstreams) {
		if n != 10 {
			t.Errorf("30 requests went %v, want 10 each", counts(upstreams))
			break
		}
	}
	s.settled()
}
