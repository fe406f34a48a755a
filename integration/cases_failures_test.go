// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A wish for a new try within the time that a user waits. One that was refused
// is made elsewhere at once: nothing in the config says how long to wait.
func TestCaseC38RefusedConnectionIsReroutedAtOnce(t *testing.T) {
	up := newUpstream(t, answerAtOnce)
	s := newServer(t)
	config := s.adapt(fmt.Sprintf("{site0} {\n"+proxyTo+"}\n", "{dead} "+up.address(), "lb_retries 1"))
	for _, wait := range []string{"try_interval", "try_duration"} {
		if strings.Contains(string(config), wait) {
			t.Fatalf("the config has a %s", wait)
		}
	}
	s.run(config)
	for i := range 6 {
		before := up.count()
		wantStatus(t, ended(t, s.sites[0], chat(words(fmt.Sprint("request ", i), 500))), http.StatusOK)
		if got := up.count() - before; got != 1 {
			t.Errorf("request %d was received %d times, want once", i, got)
		}
	}
	s.settled()
	if got := s.fleet().total().Releases["retried"]; got == 0 {
		t.Error("no request met the upstream that refuses connections")
	}
}

// What is wrong with a request opened the breakers of every upstream in turn
// until there was none left.
func TestCaseC41ClientErrorsBlameNobody(t *testing.T) {
	upstreams := newUpstreams(t, 3, fails(http.StatusBadRequest))
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	for i := range 100 {
		wantStatus(t, ended(t, s.sites[0], chat(fmt.Sprint("bad ", i)), "X-Session-ID", fmt.Sprint(i%10)), http.StatusBadRequest)
	}
	s.settled()
	for _, u := range upstreams {
		if got := s.fleet().of(u); got.State != "available" || s.failedLoad(u) != 0 {
			t.Errorf("an upstream is %s with a failed load of %v, want available and none", got.State, s.failedLoad(u))
		}
	}
	if got := burst(t, s.sites[:1], upstreams, repeated(9, func(i int) string { return chat(fmt.Sprint("good ", i)) })); !slices.Equal(got, []int{3, 3, 3}) {
		t.Errorf("9 requests went %v, want 3 each", got)
	}
	s.settled()
}

// A prompt that an engine has begun with is not sent again: that doubles its
// work. An error is passed on unless the config asks for another try.
func TestCaseC44AcceptedRequestsAreNotReplayed(t *testing.T) {
	breaksOff := func(text string) http.HandlerFunc {
		now := make(chan struct{})
		close(now)
		return resetAfter(text, now)
	}
	const retry500 = "lb_retries 2\nlb_retry_match `{rp.status_code} == 500`"
	const own = `{"error":{"message":"no"}}`
	for _, test := range []struct {
		name     string
		answer   http.HandlerFunc
		retries  string
		attempts int
		text     string
	}{
		{"status 500", fails(500), "lb_retries 2", 1, own},
		{"status 500, opted in for 503", fails(500), retryOn503, 1, own},
		// two upstreams had the whole request, which is enough: it may be what
		// breaks them. Caddy has let go of the last response too
		{"status 500, opted in", fails(500), retry500, 2, ""},
		{"headers and a reset", breaksOff(eventStreamHeader), retry500, 1, ""},
		{"an event and a reset", breaksOff(eventStreamHeader + firstEventChunk), retry500, 1, "data: {\"a\":1}\n\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, test.answer)
			s := start(t, fmt.Sprintf("{site0} {\n"+proxyTo+"}\n", addresses(upstreams), test.retries))
			res, err := send(t.Context(), s.sites[0], chatPath, chat("hello"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if res.StatusCode == http.StatusOK && err == nil {
				t.Error("the client saw a whole stream")
			}
			if string(text) != test.text {
				t.Errorf("status %d: %q, want %q", res.StatusCode, text, test.text)
			}
			if got := total(counts(upstreams)); got != test.attempts {
				t.Errorf("the request was received %d times, want %d", got, test.attempts)
			}
			s.settled()
		})
	}
}

// Workers behind a proxy that goes by names were healthy and failed every chat:
// each has to be asked by its own name, also on a retry.
func TestCaseC46UpstreamsGetTheirOwnHost(t *testing.T) {
	var mu sync.Mutex
	hosts := map[string]int{}
	failed := false
	serve := func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		mu.Lock()
		hosts[at]++
		fail := !failed && len(hosts) == 2
		failed = failed || fail
		mu.Unlock()
		switch {
		case r.Host != at:
			http.Error(w, "no route for "+r.Host, http.StatusNotFound)
		case fail:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			answerAtOnce(w, r)
		}
	}
	upstreams := []*upstream{newRawUpstream(t, serve), newRawUpstream(t, serve)}
	s := start(t, fmt.Sprintf(siteConfig, addresses(upstreams), "", "header_up Host {upstream_hostport}"+retry503))
	for i := range 6 {
		if status, text := exchange(t, s.sites[0], chatPath, chat(fmt.Sprint("request ", i))); status != http.StatusOK {
			t.Errorf("request %d: status %d: %s", i, status, text)
		}
	}
	if !failed || len(hosts) != 2 {
		t.Errorf("requests went %v, a retry was made: %v, want both upstreams and a retry", hosts, failed)
	}
	s.settled()
}

// A router said that it was ready with no workers at all, and requests hung.
func TestCaseC47NoUpstreamsIsSaidAtOnce(t *testing.T) {
	changing.Store(t.Name(), []string{})
	defer changing.Delete(t.Name())
	s := start(t, fmt.Sprintf(`
{site0} {
	llm_loadaware
	llm_loadaware_models /v1/models
	reverse_proxy {
		dynamic changing %s
		lb_policy llm_loadaware
	}
	handle_errors {
		respond "{err.message}" {err.status_code}
	}
}
`, t.Name()))
	if status, text := exchange(t, s.sites[0], chatPath, chat("hello")); status != http.StatusServiceUnavailable || text != "no upstreams available" {
		t.Errorf("status %d: %q, want 503 and the reason", status, text)
	}
	if status, text := askModels(t, s, http.MethodGet, "/v1/models"); status != http.StatusServiceUnavailable || !strings.Contains(text, "service_unavailable") {
		t.Errorf("models: status %d: %s, want 503 and an error", status, text)
	}
	if got := s.fleet().total(); got.RequestsInFlight != 0 || sum(got.Placements) != 0 {
		t.Errorf("fleet = %+v, want nothing", got)
	}
}

// An upstream that said when to come back was asked again at once. Others take
// over, and what the last one says is the client's to know.
func TestCaseD11RetryAfterIsPassedOn(t *testing.T) {
	busy := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "30")
		fails(http.StatusServiceUnavailable)(w, r)
	}
	upstreams := newUpstreams(t, 2, busy)
	other := upstreams[1]
	other.setAnswer(answerAtOnce)
	s := start(t, fmt.Sprintf("{site0} {\n"+proxyTo+"}\n{site1} {\n"+proxyTo+"}\n", addresses(upstreams), retryOn503, addresses(upstreams), ""))
	for i := range 8 {
		wantStatus(t, ended(t, s.sites[0], chat(words(fmt.Sprint("request ", i), 500))), http.StatusOK)
		s.settled()
	}
	if got := upstreams[0].count(); got != 1 {
		t.Errorf("the upstream that is to be left alone was asked %d times, want once", got)
	}
	other.setAnswer(busy)
	// Caddy lets a response go that a lb_retry_match wants to be tried again
	res, err := send(t.Context(), s.sites[1], chatPath, chat("last"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Retry-After"); res.StatusCode != http.StatusServiceUnavailable || got != "30" {
		t.Errorf("status %d, Retry-After %q, want what the upstream says", res.StatusCode, got)
	}
	s.settled()
}
