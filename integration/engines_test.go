// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// reported is what the admin API shows of an upstream's engine.
type reported struct {
	Upstream          string
	State             string
	Placements        map[string]int
	RequestsInFlight  int     `json:"requests_in_flight"`
	RequestsElsewhere float64 `json:"requests_elsewhere"`
	PrefixBlocks      int     `json:"prefix_blocks"`
	PrefixBelief      float64 `json:"prefix_belief"`
	Sessions          int
	Models            []string
	Engine            map[string]float64
	ScrapeErrors      int `json:"scrape_errors"`
}

// reported returns what is shown of an engine.
func (s *server) reported(host *vllmsim.Host) reported {
	s.t.Helper()
	return s.reportedAt(host.Addr())
}

// reportedAt is reported by the address.
func (s *server) reportedAt(address string) reported {
	s.t.Helper()
	var f struct{ Upstreams []reported }
	_, text := s.get("/llm_loadaware/fleets/default")
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	for _, u := range f.Upstreams {
		if u.Upstream == address {
			return u
		}
	}
	s.t.Fatalf("%s is not shown: %s", address, text)
	return reported{}
}

// becomes waits until what is shown of an engine holds.
func (s *server) becomes(host *vllmsim.Host, what string, holds func(u reported) bool) {
	s.t.Helper()
	s.becomesAt(host.Addr(), what, holds)
}

// becomesAt is becomes by the address.
func (s *server) becomesAt(address, what string, holds func(u reported) bool) {
	s.t.Helper()
	var last reported
	eventually(s.t, func() bool {
		last = s.reportedAt(address)
		return holds(last)
	}, func() string { return fmt.Sprintf("%s: it is not so: %+v", what, last) })
}

func hostAddresses(hosts ...*vllmsim.Host) string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = h.Addr()
	}
	return strings.Join(list, " ")
}

// placed is how many chats an engine was sent.
func placed(host *vllmsim.Host) int { return host.Server().Counts()[chatPath] }

// hold begins n long streams at an address and returns what ends them.
func hold(t *testing.T, site string, n int) (leave func()) {
	t.Helper()
	var streams []io.Closer
	for i := range n {
		res := begin(t, site, chatPath, chat(words(fmt.Sprint("hold", site, i), 50)))
		streams = append(streams, res.Body)
	}
	return sync.OnceFunc(func() {
		for _, stream := range streams {
			_ = stream.Close()
		}
	})
}

// slowly is an engine whose answers go on for as long as a test does.
func slowly(t *testing.T) *vllmsim.Host {
	t.Helper()
	host, err := vllmsim.NewHost(vllmsim.NewServer(vllmsim.ServerConfig{
		Models: []string{"m"}, Speed: 1, OutputTokens: 100_000, MaxOutputTokens: 100_000,
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	return host
}

// Two replicas of a router do not know what the other one has sent.
//
// Requests that somebody else has sent to an engine move new ones to the others,
// and those of a burst of our own are not taken for somebody else's.
func TestCaseD27LoadOfAnotherRouterIsSeen(t *testing.T) {
	busy, idle := slowly(t), slowly(t)
	s := start(t, fmt.Sprintf(scraping, hostAddresses(busy, idle), "", "", ""))

	leave := hold(t, busy.Addr(), 8)
	defer leave()
	s.becomes(busy, "load from elsewhere", func(u reported) bool { return u.RequestsElsewhere == 8 })
	leaveOurs := hold(t, s.sites[0], 8)
	defer leaveOurs()
	if got := placed(idle); got != 8 {
		t.Errorf("%d of 8 requests went to the idle engine", got)
	}

	// each engine now has eight requests, and the next are shared out
	more := hold(t, s.sites[0], 8)
	defer more()
	if got := placed(idle); got < 10 || got > 14 {
		t.Errorf("%d of 16 requests went to the engine that was idle, want about 12", got)
	}
	for range 5 {
		s.becomes(busy, "a report", func(u reported) bool {
			return u.Engine["requests_running"] == float64(8+u.RequestsInFlight)
		})
		if a, b := s.reported(busy).RequestsElsewhere, s.reported(idle).RequestsElsewhere; a > 8 || b != 0 {
			t.Errorf("requests from elsewhere = %v and %v, want 8 and 0: own ones count twice", a, b)
		}
	}
	leave()
	s.becomes(busy, "the others have left", func(u reported) bool { return u.RequestsElsewhere == 0 })
}

// A full engine gets no new session while another one is there, and keeps the
// sessions that are at home there. All full ones are as good as none.
func TestFullEngine(t *testing.T) {
	usage := func(host *vllmsim.Host, value float64) {
		host.Server().SetFault(vllmsim.Fault{Report: vllmsim.Report{KVUsage: &value}})
	}
	a, b := simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})
	s := start(t, fmt.Sprintf(scraping, hostAddresses(a, b), "", "", ""))
	turn := func(session int) (atA bool) {
		t.Helper()
		before := placed(a)
		status, text := exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint("session", session), 400)),
			"X-Session-ID", fmt.Sprint(session))
		if status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
		s.settled()
		return placed(a) > before
	}
	home := 0
	for !turn(home) {
		home++
	}

	usage(a, 0.97)
	s.becomes(a, "97 % of the KV cache", func(u reported) bool { return u.State == "full" })
	for i := range 8 {
		if turn(100 + i) {
			t.Errorf("new session %d went to the full engine", i)
		}
	}
	if !turn(home) {
		t.Error("the session left its full home")
	}

	usage(a, 0.92)
	s.becomes(a, "92 %", func(u reported) bool { return u.Engine["kv_usage"] == 0.92 })
	if state := s.reported(a).State; state != "full" {
		t.Errorf("state at 92 %% = %s, want full until it is under 90 %%", state)
	}
	usage(a, 0.89)
	s.becomes(a, "89 %", func(u reported) bool { return u.State == "available" })
	if atA := turn(200); !atA && !turn(201) {
		t.Error("the engine that is no longer full gets no session")
	}

	usage(a, 0.99)
	usage(b, 0.99)
	s.becomes(a, "both full", func(u reported) bool { return u.State == "full" })
	s.becomes(b, "both full", func(u reported) bool { return u.State == "full" })
	first := turn(300)
	if second := turn(301); first == second {
		t.Error("two sessions on two full engines went to the same one")
	}
}

// A sleeping engine is left alone until it wakes.
func TestSleepingEngine(t *testing.T) {
	a, b := simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})
	s := start(t, fmt.Sprintf(scraping, hostAddresses(a, b), "", "", ""))
	a.Server().SetFault(vllmsim.Fault{Sleep: true})
	s.becomes(a, "asleep", func(u reported) bool { return u.State == "asleep" })
	for i := range 6 {
		if status, text := exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 100))); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	if got := placed(a); got != 0 {
		t.Errorf("%d requests went to the sleeping engine", got)
	}
	a.Server().SetFault(vllmsim.Fault{})
	s.becomes(a, "awake", func(u reported) bool { return u.State == "available" })
	for i := range 6 {
		exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint("again", i), 100)))
	}
	if got := placed(a); got != 3 {
		t.Errorf("%d of 6 requests went to the engine that woke up, want 3", got)
	}
}

// An engine that was started anew at the same address has an empty cache, and is
// still the home of its sessions.
func TestRestartedEngine(t *testing.T) {
	a, b := simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})
	s := start(t, fmt.Sprintf(scraping, hostAddresses(a, b), "", "", ""))
	for _, host := range []*vllmsim.Host{a, b} {
		s.becomes(host, "scraped", func(u reported) bool { return u.Engine["kv_tokens"] > 0 })
	}
	for i := range 6 {
		exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 1000)), "X-Session-ID", fmt.Sprint(i))
		s.settled()
	}
	before := s.reported(a)
	if before.PrefixBlocks == 0 || before.Sessions != 3 {
		t.Fatalf("before the restart: %+v, want 3 sessions and their blocks", before)
	}
	other := s.reported(b).PrefixBlocks
	a.Restart()
	s.becomes(a, "restarted", func(u reported) bool { return u.PrefixBlocks == 0 })
	if got := s.reported(a).Sessions; got != 3 {
		t.Errorf("%d sessions are at home there after the restart, want 3", got)
	}
	if got := s.reported(b).PrefixBlocks; got != other {
		t.Errorf("the other engine is believed to hold %d blocks, want %d", got, other)
	}
	s.becomes(a, "available", func(u reported) bool { return u.State == "available" })
	pinned := s.fleet().total().Placements["pinned"]
	for i := range 6 {
		exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 1000)), "X-Session-ID", fmt.Sprint(i))
		s.settled()
	}
	if got := s.fleet().total().Placements["pinned"] - pinned; got != 6 {
		t.Errorf("%d of 6 sessions stayed at home", got)
	}
}

// A request goes to an engine that serves its model, wherever that is, and one
// for an unknown model to any engine, whose answer the client gets.
func TestModelsDecide(t *testing.T) {
	a, b := simulated(t, vllmsim.ServerConfig{Models: []string{"x"}}), simulated(t, vllmsim.ServerConfig{Models: []string{"x"}})
	c := simulated(t, vllmsim.ServerConfig{Models: []string{"y"}})
	c.Server().SetModels([]string{"y"}, vllmsim.Adapter{Name: "x-lora", Base: "y"})
	s := start(t, "{site0} {\nllm_loadaware_models /v1/models\n"+
		strings.TrimPrefix(strings.TrimSpace(fmt.Sprintf(scraping, hostAddresses(a, b, c), "", "", "")), "{site0} {"))
	for _, host := range []*vllmsim.Host{a, b, c} {
		s.becomes(host, "models are listed", func(u reported) bool { return len(u.Models) > 0 })
	}
	ask := func(model string, times int) {
		t.Helper()
		for i := range times {
			if status, text := exchange(t, s.sites[0], chatPath, asking(model, words(fmt.Sprint(model, i), 100))); status != http.StatusOK {
				t.Fatalf("%s: status %d: %s", model, status, text)
			}
		}
	}
	ask("x", 6)
	if placed(a) != 3 || placed(b) != 3 || placed(c) != 0 {
		t.Errorf("requests for x: %d, %d and %d, want 3, 3 and 0", placed(a), placed(b), placed(c))
	}
	ask("y", 2)
	ask("x-lora", 2)
	if placed(a) != 3 || placed(b) != 3 || placed(c) != 4 {
		t.Errorf("with requests for y and x-lora: %d, %d and %d, want 3, 3 and 4", placed(a), placed(b), placed(c))
	}
	status, text := exchange(t, s.sites[0], chatPath, asking("z", "hello"))
	if status != http.StatusNotFound || !strings.Contains(text, "The model `z` does not exist.") {
		t.Errorf("an unknown model: status %d: %s, want the engine's 404", status, text)
	}
	_, text = askModels(t, s, http.MethodGet, "/v1/models")
	var list struct{ Data []struct{ ID, Parent string } }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(list.Data), "[{x } {x-lora y} {y }]"; got != want {
		t.Errorf("GET /v1/models lists %s, want %s", got, want)
	}

	a.Server().SetModels([]string{"x", "z"})
	s.becomes(a, "a model was loaded", func(u reported) bool { return len(u.Models) == 2 })
	atB, atC := placed(b), placed(c)
	ask("z", 2)
	if placed(b) != atB || placed(c) != atC {
		t.Errorf("of 2 requests for z, %d and %d went to engines that do not serve it", placed(b)-atB, placed(c)-atC)
	}
}

// Behind one address two engines take turns, so half of what is believed to be
// cached is not. That is measured.
func TestDataParallelEngines(t *testing.T) {
	host := simulated(t, vllmsim.ServerConfig{DataParallel: 2})
	s := start(t, fmt.Sprintf(scraping, host.Addr(), "", "", ""))
	s.becomes(host, "scraped", func(u reported) bool { return u.Engine["kv_tokens"] > 0 })
	for i := range 16 {
		// each prompt is asked for twice, and meets both engines
		for range 2 {
			status, text := exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 20_000)))
			if status != http.StatusOK {
				t.Fatalf("status %d: %s", status, text)
			}
		}
	}
	s.becomes(host, "the second time finds nothing", func(u reported) bool { return u.PrefixBelief < 0.1 })

	two, nine := 2, 9
	host.Server().SetFault(vllmsim.Fault{Report: vllmsim.Report{Running: &two, Waiting: &nine}})
	s.becomes(host, "both engines are added up", func(u reported) bool {
		return u.Engine["requests_running"] == 4 && u.Engine["requests_waiting"] == 18
	})
}

// After every client has left, gauges that stand still at a busy engine's values
// shut it out for no longer than it takes to see that they do.
func TestFrozenGauges(t *testing.T) {
	a, b := simulated(t, vllmsim.ServerConfig{}), simulated(t, vllmsim.ServerConfig{})
	s := start(t, fmt.Sprintf(scraping, hostAddresses(a, b), "", "", ""))
	forty, usage := 40, 0.99
	a.Server().SetFault(vllmsim.Fault{Report: vllmsim.Report{Running: &forty, KVUsage: &usage}})
	s.becomes(a, "busy and full", func(u reported) bool { return u.RequestsElsewhere == 40 && u.State == "full" })
	s.becomes(a, "frozen", func(u reported) bool { return u.RequestsElsewhere == 0 && u.State == "available" })
	for i := range 6 {
		exchange(t, s.sites[0], chatPath, chat(words(fmt.Sprint(i), 100)))
	}
	if got := placed(a); got == 0 {
		t.Error("the engine whose gauges are frozen gets nothing")
	}
}
