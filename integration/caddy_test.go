// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	// the Caddyfile adapter and everything a Caddyfile may name
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-llm/loadaware"
)

// adminClient talks to admin endpoints.
var adminClient = &http.Client{Transport: adminTransport{}}

// adminTransport sends once more what a closed connection has kept from an answer,
// unless it has a body that cannot be sent again. An admin endpoint that Caddy has
// just replaced may take one more connection from the listener that both share, and
// end it before or after it was written to: with a reset, or like any other. What is
// sent may come twice, a config that is already there changes nothing.
type adminTransport struct{}

func (adminTransport) RoundTrip(r *http.Request) (res *http.Response, err error) {
	for range 100 {
		res, err = http.DefaultTransport.RoundTrip(r)
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			break
		}
		if r.Body == nil || r.Body == http.NoBody {
			continue
		}
		if r.GetBody == nil {
			break
		}
		if r.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
	}
	return res, err
}

// server is a running Caddy.
type server struct {
	t     testing.TB
	admin string

	// sites are addresses that a Caddyfile may listen on: {site0}, {site1}
	sites [3]string

	// dead is an address that nobody listens on: {dead} in a Caddyfile
	dead string

	// storage is the directory of what Caddy stores
	storage string

	// log is where Caddy logs to, discard if it is empty
	log string
}

// start runs Caddy with a Caddyfile in which {site0} to {site2} are free
// addresses, and stops it at the end of the test.
func start(t testing.TB, caddyfile string) *server {
	t.Helper()
	s := newServer(t)
	s.run(s.adapt(caddyfile))
	return s
}

// newServer is a Caddy that does not run yet. Its storage is empty, and the
// test's own.
func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, storage: t.TempDir()}
	caddy.DefaultStorage.Path = s.storage
	free := freeAddresses(t, len(s.sites)+2)
	s.admin, s.dead = free[0], free[1]
	copy(s.sites[:], free[2:])
	return s
}

// run starts Caddy with a JSON config and stops it at the end of the test.
func (s *server) run(config []byte) {
	s.t.Helper()
	if err := caddy.Load(config, true); err != nil {
		s.t.Fatalf("loading config: %v", err)
	}
	s.t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			s.t.Errorf("stopping Caddy: %v", err)
		}
	})
}

func freeAddress(t testing.TB) string {
	t.Helper()
	return freeAddresses(t, 1)[0]
}

// freeAddresses returns different addresses that nobody listens on.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	free := make([]string, n)
	for i := range free {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		// all stay open until the last is known: the kernel may give a closed
		// one out again
		defer ln.Close()
		free[i] = ln.Addr().String()
	}
	return free
}

// caddyfile completes a Caddyfile: global options first, addresses filled in.
func (s *server) caddyfile(body string) string {
	global := fmt.Sprintf(`{
	admin %s
	auto_https off
	persist_config off
	grace_period 100ms
	skip_install_trust
	metrics
	storage file_system %q
	log {
		output %s
	}
	servers {
		protocols h1 h2 h2c h3
	}
}
`, s.admin, s.storage, cmp.Or(s.log, "discard"))
	for i, site := range s.sites {
		body = strings.ReplaceAll(body, fmt.Sprintf("{site%d}", i), "http://"+site)
	}
	return global + strings.ReplaceAll(body, "{dead}", s.dead)
}

func (s *server) adapt(body string) []byte {
	s.t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(s.caddyfile(body)), nil)
	if err != nil {
		s.t.Fatalf("adapting: %v", err)
	}
	return config
}

// reload posts a Caddyfile to the admin API. header is a field and its value,
// or empty.
func (s *server) reload(body string, header ...string) error {
	s.t.Helper()
	return s.post("text/caddyfile", s.caddyfile(body), header...)
}

// reloadJSON posts a JSON config to the admin API.
func (s *server) reloadJSON(config string) error {
	s.t.Helper()
	return s.post("application/json", config)
}

func (s *server) post(contentType, config string, header ...string) error {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+s.admin+"/load", strings.NewReader(config))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", contentType)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	before := listening()
	res, err := adminClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", res.StatusCode, text)
	}
	s.succeeds(before)
	return nil
}

// get fetches a path of the admin API.
func (s *server) get(path string) (int, string) {
	s.t.Helper()
	return s.ask(http.MethodGet, path)
}

// ask sends a request without a body to the admin API.
func (s *server) ask(method, path string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, "http://"+s.admin+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := adminClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// fleetStatus is what the admin API shows of a fleet.
type fleetStatus struct {
	Name      string
	Sessions  int
	Upstreams []upstreamStatus
	Share     *shareStatus

	QueueWaiting  map[string]int `json:"queue_waiting"`
	QueueRejected map[string]int `json:"queue_rejected"`
}

type shareStatus struct {
	Connected bool
	Peers     int
	Errors    int
	Sent      int `json:"messages_sent"`
	Heard     int `json:"messages_heard"`
}

type upstreamStatus struct {
	Upstream         string
	State            string
	RequestsInFlight int `json:"requests_in_flight"`
	RequestsWaiting  int `json:"requests_waiting"`
	OfPeers          int `json:"peers_requests_in_flight"`
	PrefillTokens    int `json:"prefill_tokens"`
	Sessions         int
	PrefixBlocks     int `json:"prefix_blocks"`
	CachedPredicted  int `json:"cached_tokens_predicted"`
	CachedReported   int `json:"cached_tokens_reported"`
	Placements       map[string]int
	Releases         map[string]int
}

// fleet returns the state of the default fleet.
func (s *server) fleet() fleetStatus {
	s.t.Helper()
	status, text := s.get("/llm_loadaware/fleets/default")
	if status != http.StatusOK {
		s.t.Fatalf("GET fleet: status %d: %s", status, text)
	}
	var f fleetStatus
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		s.t.Fatal(err)
	}
	return f
}

// total adds the upstreams of a fleet up.
func (f fleetStatus) total() upstreamStatus {
	sum := upstreamStatus{Placements: map[string]int{}, Releases: map[string]int{}}
	for _, u := range f.Upstreams {
		sum.RequestsInFlight += u.RequestsInFlight
		sum.RequestsWaiting += u.RequestsWaiting
		sum.PrefillTokens += u.PrefillTokens
		sum.Sessions += u.Sessions
		sum.CachedPredicted += u.CachedPredicted
		sum.CachedReported += u.CachedReported
		for reason, n := range u.Placements {
			sum.Placements[reason] += n
		}
		for cause, n := range u.Releases {
			sum.Releases[cause] += n
		}
	}
	return sum
}

// of returns the state of one upstream.
func (f fleetStatus) of(u *upstream) upstreamStatus {
	for _, status := range f.Upstreams {
		if status.Upstream == u.address() {
			return status
		}
	}
	return upstreamStatus{}
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// settled waits until nothing is reserved, and fails if that does not come.
func (s *server) settled() {
	s.t.Helper()
	var last fleetStatus
	eventually(s.t, func() bool {
		last = s.fleet()
		sums := last.total()
		return sums.RequestsInFlight == 0 && sums.RequestsWaiting == 0 && sums.PrefillTokens == 0
	}, func() string { return fmt.Sprintf("counters are not 0: %+v", last) })
	if sums := last.total(); sum(sums.Placements) != sum(sums.Releases) {
		s.t.Errorf("placements %v, releases %v: want as many of one as of the other", sums.Placements, sums.Releases)
	}
}

// inFlight is how many requests are in flight on the default fleet.
func (s *server) inFlight() int {
	s.t.Helper()
	return s.fleet().total().RequestsInFlight
}

// accepts waits until the first site answers. A server that Caddy has stopped may
// take one more connection from the listener it shared, and reset it.
func (s *server) accepts() {
	s.t.Helper()
	var last error
	eventually(s.t, func() bool {
		res, err := client.Get("http://" + s.sites[0] + "/metrics")
		if last = err; err != nil {
			return false
		}
		return res.Body.Close() == nil
	}, func() string { return fmt.Sprintf("site does not answer: %v", last) })
}

// patience is how long a condition may take on a busy machine before it counts
// as never.
const patience = 30 * time.Second

// eventually polls a condition until it holds.
func eventually(t testing.TB, holds func() bool, otherwise func() string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal(otherwise())
		}
	}
}
