// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// The tests of the files cases_*_test.go are cases of docs/cases.md: what went
// wrong in other routers.

// lyingMetrics sends requests one after the other to engines whose metrics do
// not tell of them, and checks that they are spread all the same.
func lyingMetrics(t *testing.T, requests int, fault vllmsim.MetricsFault) {
	t.Helper()
	hosts := []*vllmsim.Host{slowly(t), slowly(t), slowly(t)}
	s := start(t, fmt.Sprintf(scraping, hostAddresses(hosts...), "", "", ""))
	for _, host := range hosts {
		host.Server().SetFault(vllmsim.Fault{Metrics: fault})
		s.becomes(host, "scraped", func(u reported) bool { return u.Engine["kv_tokens"] > 0 })
	}
	leave := hold(t, s.sites[0], requests)
	defer leave()
	var got []int
	for _, host := range hosts {
		got = append(got, placed(host))
		if u := s.reported(host); u.State != "available" || u.RequestsElsewhere != 0 {
			t.Errorf("an engine whose metrics say nothing of its requests is shown as %+v", u)
		}
	}
	if slices.Max(got)-slices.Min(got) > 1 || total(got) != requests {
		t.Errorf("%d requests went %v, want within 1 of each other", requests, got)
	}
}

// A router that balances by what it polls sends everything of one poll interval
// to the same engine. The page here stands still for as long as the requests run.
func TestCaseC3FrozenMetricsDoNotHerd(t *testing.T) { lyingMetrics(t, 50, vllmsim.MetricsFrozen) }

// The gauges of an engine stay 0 for many seconds after a cold start, which
// looks idle whatever was sent there.
func TestCaseC4D23ZeroGaugesDoNotHerd(t *testing.T) { lyingMetrics(t, 30, vllmsim.MetricsZeros) }

// Load was counted from the response headers on, so traffic with long prompts
// and short answers stuck to the first worker. Here one has not answered at all.
func TestCaseC8LoadCountsBeforeHeaders(t *testing.T) {
	arrived, answers := make(chan struct{}), make(chan struct{})
	upstreams := newUpstreams(t, 2, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		if reached(r, answers) {
			answerAtOnce(w, r)
		}
	})
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	var wg sync.WaitGroup
	wg.Go(func() {
		if status := ended(t, s.sites[0], chat(words("long", 32_000))); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	})
	<-arrived
	withheld := upstreams[0]
	if withheld.count() == 0 {
		withheld = upstreams[1]
	}
	for i := range 8 {
		if turn(t, s, upstreams, unstreamed(chat(words(fmt.Sprint("next ", i), 32_000)))) == withheld {
			t.Errorf("request %d went to the upstream that has not answered yet", i)
		}
	}
	close(answers)
	wg.Wait()
	s.settled()
}

// Paths that a router did not know went past its counters: one of eight engines
// had nearly five hundred requests at once, and other APIs were not seen at all.
func TestCaseC9D13UnlistedPathsAreBalanced(t *testing.T) {
	const each = 4
	for _, path := range []string{
		"/inference/v1/generate", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/rerank", "/some/api",
	} {
		t.Run(path, func(t *testing.T) {
			held := newStage()
			upstreams := newUpstreams(t, 4, held.answer)
			s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
			var open []*http.Response
			for i := range each * len(upstreams) {
				open = append(open, begin(t, s.sites[0], path, fmt.Sprintf(`{"model":"m","stream":true,"input":"question %d"}`, i)))
			}
			for _, u := range upstreams {
				if got := s.fleet().of(u).RequestsInFlight; u.count() != each || got != each {
					t.Errorf("an upstream has %d requests and is counted with %d, want %d", u.count(), got, each)
				}
			}
			close(held.output)
			close(held.end)
			for _, res := range open {
				_, _ = io.Copy(io.Discard, res.Body)
			}
			s.settled()
		})
	}
}

// Several routers that see the same metrics choose the same best, and a count of
// one's own is only a part of the load. Two fleets that know nothing of each
// other are two routers.
func TestCaseC21D15TwoRoutersDoNotHerd(t *testing.T) {
	const requests = 120
	twoRouters := func(upstreams []*upstream) *server {
		return start(t, fmt.Sprintf(`
{site0} {
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware {
			fleet one
		}
	}
}
{site1} {
	llm_loadaware
	reverse_proxy %[1]s {
		lb_policy llm_loadaware {
			fleet two
		}
	}
}
`, addresses(upstreams)))
	}
	for _, test := range []struct {
		name string
		text func(i int) string
	}{
		{"different prompts", func(i int) string { return words(fmt.Sprint("router ", i), 2000) }},
		{"one prompt", func(int) string { return words("the same", 2000) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 3, answerAtOnce)
			s := twoRouters(upstreams)
			got := burst(t, s.sites[:2], upstreams, repeated(requests, func(i int) string { return chat(test.text(i)) }))
			if slices.Max(got) > requests*45/100 {
				t.Errorf("%d requests through two routers went %v, want no upstream over 45 %%", requests, got)
			}
		})
	}
}
