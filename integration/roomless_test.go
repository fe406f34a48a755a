// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// An engine that answers 503 is full until its next report, or until the time that
// it says itself, whether the request is sent elsewhere or not.
func TestRetryAfterOfAFullEngine(t *testing.T) {
	for _, test := range []struct{ name, after, retries, state string }{
		{"silent", "", retryOn503, "available"},
		{"says when", "30", retryOn503, "full"},
		{"says when, and nobody tries again", "30", "", "full"},
		{"talks nonsense", "soon", retryOn503, "available"},
	} {
		t.Run(test.name, func(t *testing.T) {
			engines := []*scrapedEngine{newEngineHandler(t), newEngineHandler(t)}
			for i, e := range engines {
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if i == 0 && r.Method == http.MethodPost {
						if test.after != "" {
							w.Header().Set("Retry-After", test.after)
						}
						fails(http.StatusServiceUnavailable)(w, r)
						return
					}
					e.ServeHTTP(w, r)
				}))
				t.Cleanup(server.Close)
				e.address = server.Listener.Addr().String()
			}
			s := start(t, fmt.Sprintf(scraping, engineAddresses(engines...), "", "models off", test.retries))
			scrapedAgain(t, 1, engines...)
			for i := range 2 { // each upstream gets one of them first
				ended(t, s.sites[0], asking("sim-model", words(fmt.Sprint(i), 300)))
			}
			s.settled()
			if got := s.fleet().onAddress(engines[0].address); sum(got.Releases) == 0 {
				t.Fatal("the engine was not asked")
			}
			scrapedAgain(t, 3, engines...)
			if got := s.fleet().onAddress(engines[0].address).State; got != test.state {
				t.Errorf("after some reports it is %s, want %s", got, test.state)
			}
			if got := s.fleet().onAddress(engines[1].address).State; got != "available" {
				t.Errorf("the other one is %s, want available", got)
			}
		})
	}
}
