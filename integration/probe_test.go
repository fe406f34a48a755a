// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net/http"
	"testing"
)

// ailing is an upstream whose requests fail while it is ill. It counts how often
// it was asked for its health, and has nothing else to ask for.
type ailing struct {
	*upstream
	ill, healthy bool
	asked        int

	// answers is closed when questions that are not of its health are answered
	answers chan struct{}
}

func newAiling(t *testing.T) *ailing {
	t.Helper()
	a := &ailing{healthy: true, answers: make(chan struct{})}
	a.upstream = &upstream{Server: newRawUpstream(t, nil).Server}
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == scraperAgent {
			if r.URL.Path != "/health" {
				select {
				case <-a.answers:
				case <-r.Context().Done():
				}
			}
			w.WriteHeader(a.health(r.URL.Path))
			return
		}
		a.serve(w, r)
	})
	a.set(false, true)
	return a
}

// health is the status of an answer to a question of the policy's own.
func (a *ailing) health(path string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if path != "/health" {
		return http.StatusNotFound
	}
	a.asked++
	if !a.healthy {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// set says how the upstream is from now on, and how it says it is.
func (a *ailing) set(ill, healthy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ill, a.healthy, a.answer = ill, healthy, answerAtOnce
	if ill {
		a.answer = fails(http.StatusInternalServerError)
	}
}

// askedFor is how often it was asked for its health.
func (a *ailing) askedFor() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// An upstream that has failed gets no request before it has answered a probe, also
// where the engines are asked for nothing, or have nothing to tell.
func TestCoolingUpstreamIsProbed(t *testing.T) {
	for _, test := range []struct {
		name, metrics string

		// probes are more than one pause is long
		probes int

		// late says that the policy learns only while the upstream cools down that
		// there is nothing to tell
		late bool
	}{
		{"metrics off", "metrics off", 3, false},
		{"nothing to tell", "metrics /metrics {\ninterval 100ms\n}", 3, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, well := newAiling(t), newAiling(t)
			close(well.answers)
			if !test.late {
				close(a.answers)
			}
			config := fmt.Sprintf("{site0} {\nllm_loadaware\nreverse_proxy %s %s {\nlb_policy llm_loadaware {\n%s\n}\n}\n}\n",
				a.address(), well.address(), test.metrics)
			s := start(t, config)
			n := 0
			request := func() {
				n++
				ended(t, s.sites[0], chat(words(fmt.Sprint("request ", n), 300)))
			}
			for range 4 { // the more succeed, the more have to fail
				request()
			}
			if a.askedFor()+well.askedFor() != 0 {
				t.Fatal("an upstream that is well was asked for its health")
			}

			a.set(true, false)
			eventually(t, func() bool {
				request()
				return s.fleet().of(a.upstream).State == "cooling_down"
			}, func() string { return "the upstream that fails does not cool down" })
			received := a.count()
			if test.late {
				close(a.answers)
			}
			eventually(t, func() bool {
				request()
				return a.askedFor() >= test.probes
			}, func() string { return fmt.Sprintf("asked for its health %d times, want %d", a.askedFor(), test.probes) })
			if got := a.count(); got != received {
				t.Errorf("%d requests went to an upstream that says it is not well", got-received)
			}

			a.set(false, true)
			eventually(t, func() bool {
				request()
				return a.count() > received
			}, func() string { return "the upstream that is well again gets nothing" })
			s.settled()
			asked := a.askedFor()
			for range 4 {
				request()
			}
			if got := a.askedFor() - asked; got != 0 || well.askedFor() != 0 {
				t.Errorf("upstreams that are well were asked %d and %d times", got, well.askedFor())
			}

			// with the configuration the probes end
			a.set(true, false)
			eventually(t, func() bool {
				request()
				return s.fleet().of(a.upstream).State == "cooling_down" && a.askedFor() > asked
			}, func() string { return "the upstream that fails again is not probed" })
			if err := s.reload("{site0} {\nrespond hello\n}\n"); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool { return scrapeTasks() == 0 },
				func() string { return fmt.Sprintf("%d goroutines of the old configuration", scrapeTasks()) })
		})
	}
}
