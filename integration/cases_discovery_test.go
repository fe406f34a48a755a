// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// The gauges of engines that had gone stayed where they were.
func TestCaseC50RemovedUpstreamHasNoSeries(t *testing.T) {
	upstreams := newUpstreams(t, 3, answerAtOnce)
	s := start(t, fmt.Sprintf(oneSite, addresses(upstreams)))
	for i := range 6 {
		turn(t, s, upstreams, chat(words(fmt.Sprint("request ", i), 500)), "X-Session-ID", fmt.Sprint(i))
	}
	removed := upstreams[0]
	label := fmt.Sprintf("upstream=%q", removed.address())
	if _, text := s.get("/metrics"); !strings.Contains(text, label) {
		t.Fatal("the upstream has no series while it is there")
	}
	if err := s.reload(fmt.Sprintf(oneSite, addresses(upstreams[1:]))); err != nil {
		t.Fatal(err)
	}
	_, text := s.get("/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "caddy_llm_loadaware_") && strings.Contains(line, label) {
			t.Errorf("/metrics still has %s", line)
		}
	}
	for _, u := range upstreams[1:] {
		if !strings.Contains(text, fmt.Sprintf("upstream=%q", u.address())) {
			t.Errorf("/metrics has no series of %s, which is still there", u.address())
		}
	}
}

// Engines with data parallelism export a series for each, and the last one was
// taken for all.
func TestCaseC54D22EnginesOfOneAddressAddUp(t *testing.T) {
	e := newEngine(t)
	e.setPage(func(w http.ResponseWriter, _ *http.Request) {
		for i, engine := range []struct {
			running, waiting int
			usage            float64
		}{{2, 1, 0.2}, {9, 4, 0.6}} {
			fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\",model_name=\"m\"} %d\n", i, engine.running)
			fmt.Fprintf(w, "vllm:num_requests_waiting{engine=\"%d\",model_name=\"m\"} %d\n", i, engine.waiting)
			fmt.Fprintf(w, "vllm:kv_cache_usage_perc{engine=\"%d\",model_name=\"m\"} %g\n", i, engine.usage)
		}
	})
	s := start(t, fmt.Sprintf(scraping, e.address, "", "", ""))
	want := map[string]float64{"requests_running": 11, "requests_waiting": 5, "kv_usage": 0.4}
	s.becomesAt(e.address, "both engines are added up", func(u reported) bool {
		for name, value := range want {
			if got, ok := u.Engine[name]; !ok || got < value-1e-9 || got > value+1e-9 {
				return false
			}
		}
		return true
	})
}

// An engine renamed its metrics, and the router lost its load. Both names are
// known, and a page without either is no error.
func TestCaseC55BothNamesOfMetricsAreKnown(t *testing.T) {
	usage := 0.5
	today, old := simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{OldMetricNames: true})
	neither := newEngine(t)
	neither.setPage(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 3\n")
	})
	s := start(t, fmt.Sprintf(scraping, hostAddresses(today, old)+" "+neither.address, "", "", ""))
	for _, host := range []*vllmsim.Host{today, old} {
		host.Server().SetFault(vllmsim.Fault{Report: vllmsim.Report{KVUsage: &usage}})
		s.becomes(host, "KV usage is known", func(u reported) bool { return u.Engine["kv_usage"] == usage })
	}
	s.becomesAt(neither.address, "what is there is known", func(u reported) bool { return u.Engine["requests_waiting"] == 3 })
	got := s.reportedAt(neither.address)
	if usage, ok := got.Engine["kv_usage"]; ok || got.State != "available" || got.ScrapeErrors != 0 {
		t.Errorf("without a KV usage: %v, %+v, want an available engine without errors", usage, got)
	}
}

// What becomes of a session whose pod goes: its next turn finds another home,
// once, and stays there though the pod comes back. Nobody else moves.
func TestCaseC68SessionsOfALostUpstreamMoveOnce(t *testing.T) {
	const sessions = 9
	upstreams := newUpstreams(t, 3, answerAtOnce)
	all := strings.Fields(addresses(upstreams))
	changing.Store(t.Name(), all)
	defer changing.Delete(t.Name())
	s := start(t, fmt.Sprintf("{site0} {\nllm_loadaware\nreverse_proxy {\ndynamic changing %s\nlb_policy llm_loadaware\n}\n}\n", t.Name()))
	texts := make([][]string, sessions)
	next := func(i int) *upstream {
		texts[i] = append(texts[i], words(fmt.Sprint("session ", i, " turn ", len(texts[i])), 2000))
		at := turn(t, s, upstreams, conversation(texts[i]...), "X-Session-ID", fmt.Sprint("session ", i))
		texts[i] = append(texts[i], "answer")
		return at
	}
	homes := make([]*upstream, sessions)
	for i := range homes {
		homes[i] = next(i)
	}
	lost := upstreams[0]
	changing.Store(t.Name(), all[1:])
	for i, home := range homes {
		at := next(i)
		if home != lost && at != home {
			t.Errorf("session %d moved though its upstream is there", i)
		}
		if at == lost {
			t.Errorf("session %d went to an upstream that is gone", i)
		}
		homes[i] = at
	}
	moved := s.fleet().total().Placements["moved_unavailable"]
	if moved != sessions/3 {
		t.Errorf("%d sessions moved, want the %d whose upstream is gone", moved, sessions/3)
	}
	changing.Store(t.Name(), all)
	for range 2 {
		for i, home := range homes {
			if at := next(i); at != home {
				t.Errorf("session %d moved again", i)
			}
		}
	}
	s.settled()
}
