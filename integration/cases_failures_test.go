// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

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
