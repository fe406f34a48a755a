// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// scraping is a site whose engines are asked ten times a second, with more
// options of metrics, of the policy and of the proxy.
const scraping = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware {
			metrics /metrics {
				interval 100ms
				%s
			}
			%s
		}
		%s
	}
}
`

// scrapedEngine is a simulated vLLM server. While page is set, it answers in
// place of the engine's /metrics.
type scrapedEngine struct {
	*vllmsim.Server
	address string

	mu     sync.Mutex
	page   http.HandlerFunc
	scrape []received
}

// ServeHTTP implements http.Handler.
func (e *scrapedEngine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	if r.Method == http.MethodGet {
		e.scrape = append(e.scrape, received{r.Method, r.URL.RequestURI(), r.Header.Clone(), r.Host})
	}
	page := e.page
	e.mu.Unlock()
	if page != nil && r.URL.Path == "/metrics" {
		page(w, r)
		return
	}
	e.Server.ServeHTTP(w, r)
}

func (e *scrapedEngine) setPage(page http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.page = page
}

// scrapes are the questions for a page, in order.
func (e *scrapedEngine) scrapes(path string) (list []received) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.scrape {
		if r.path == path {
			list = append(list, r)
		}
	}
	return list
}

// newEngineHandler is an engine without an address.
func newEngineHandler(t testing.TB, models ...string) *scrapedEngine {
	e := &scrapedEngine{Server: vllmsim.NewServer(vllmsim.ServerConfig{Models: models, Speed: 1000, OutputTokens: 2})}
	t.Cleanup(e.Close)
	return e
}

// newEngine is an engine on a port of loopback.
func newEngine(t testing.TB) *scrapedEngine {
	t.Helper()
	e := newEngineHandler(t)
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	e.address = server.Listener.Addr().String()
	return e
}

func engineAddresses(engines ...*scrapedEngine) string {
	var list []string
	for _, e := range engines {
		list = append(list, e.address)
	}
	return strings.Join(list, " ")
}

// scrapedAgain waits until each engine was asked for its metrics n more times.
func scrapedAgain(t testing.TB, n int, engines ...*scrapedEngine) {
	t.Helper()
	for _, e := range engines {
		before := len(e.scrapes("/metrics"))
		eventually(t, func() bool { return len(e.scrapes("/metrics")) >= before+n },
			func() string { return fmt.Sprintf("%s was asked %d times", e.address, len(e.scrapes("/metrics"))) })
	}
}

// logging makes Caddy log to a file, and returns what the policies have said
// there, as level and message with the page.
func (s *server) logging() func() []string {
	file := filepath.Join(s.t.TempDir(), "log")
	s.log = "file " + file + " {\nroll_disabled\n}"
	return func() (list []string) {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			var entry struct{ Logger, Level, Msg, Page, Error string }
			if json.Unmarshal([]byte(line), &entry) == nil && strings.HasSuffix(entry.Logger, ".llm_loadaware") {
				list = append(list, strings.Join([]string{entry.Level, entry.Msg, entry.Page, entry.Error}, " "))
			}
		}
		return list
	}
}

// asking is a chat request for a model.
func asking(model, text string) string {
	return strings.Replace(chat(text), `"model":"m"`, `"model":"`+model+`"`, 1)
}

// The engines are asked as they are proxied to. That the answers arrive shows in
// where models go.
func TestScrapeTransports(t *testing.T) {
	for _, test := range []struct {
		name, proxy string
		listen      func(t *testing.T, e *scrapedEngine)
	}{
		{"plain", "", func(t *testing.T, e *scrapedEngine) {
			server := httptest.NewServer(e)
			t.Cleanup(server.Close)
			e.address = server.Listener.Addr().String()
		}},
		{"tls", "transport http {\ntls\ntls_insecure_skip_verify\n}", func(t *testing.T, e *scrapedEngine) {
			server := httptest.NewTLSServer(e)
			t.Cleanup(server.Close)
			e.address = server.Listener.Addr().String()
		}},
		{"tls with a name for each upstream", "transport http {\ntls\ntls_insecure_skip_verify\ntls_server_name {http.reverse_proxy.upstream.host}\n}", func(t *testing.T, e *scrapedEngine) {
			server := httptest.NewTLSServer(e)
			t.Cleanup(server.Close)
			e.address = server.Listener.Addr().String()
		}},
		{"h2c", "transport http {\nversions h2c 2\n}", func(t *testing.T, e *scrapedEngine) {
			server := httptest.NewUnstartedServer(e)
			server.Config.Protocols = new(http.Protocols)
			server.Config.Protocols.SetUnencryptedHTTP2(true)
			server.Start()
			t.Cleanup(server.Close)
			e.address = server.Listener.Addr().String()
		}},
		{"unix socket", "", func(t *testing.T, e *scrapedEngine) {
			path := filepath.Join(t.TempDir(), "s")
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewUnstartedServer(e)
			server.Listener.Close()
			server.Listener = ln
			server.Start()
			t.Cleanup(server.Close)
			e.address = "unix/" + path
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			engines := []*scrapedEngine{newEngineHandler(t, "one"), newEngineHandler(t, "two")}
			for _, e := range engines {
				test.listen(t, e)
			}
			s := newServer(t)
			said := s.logging()
			s.run(s.adapt(fmt.Sprintf(scraping, engineAddresses(engines...), "", "", test.proxy)))
			scrapedAgain(t, 3, engines...)
			n := 0
			eventually(t, func() bool {
				for range 4 {
					for _, model := range []string{"one", "two"} {
						n++
						if status, _ := exchange(t, s.sites[0], chatPath, asking(model, words(fmt.Sprint(n), 300))); status != 200 {
							return false
						}
					}
				}
				return true
			}, func() string { return "models do not find their upstreams" })
			for _, e := range engines {
				r := e.scrapes("/metrics")[0]
				if got := []string{r.header.Get("User-Agent"), r.header.Get("Accept"), r.header.Get("Accept-Encoding")}; !slices.Equal(got,
					[]string{scraperAgent, "text/plain", "identity"}) {
					t.Errorf("request headers are %q", got)
				}
				if host := r.body; host != e.address && !(strings.HasPrefix(e.address, "unix") && host == "localhost") {
					t.Errorf("host is %q at %s", host, e.address)
				}
			}
			if list := said(); len(list) != 0 {
				t.Errorf("log is %q", list)
			}
			s.settled()
		})
	}
}

// After a reload old backends were still asked for their health, or nobody was.
//
// Whatever a reload changes, the engines of the new config are asked and no
// other.
func TestCaseC51ReloadChangesWhoIsAsked(t *testing.T) {
	engines := []*scrapedEngine{newEngine(t), newEngine(t), newEngine(t)}
	a, b, c := engines[0], engines[1], engines[2]
	s := start(t, fmt.Sprintf(scraping, engineAddresses(a, b), "", "", ""))
	scrapedAgain(t, 2, a, b)
	for _, test := range []struct {
		name   string
		load   func() error
		asked  []*scrapedEngine
		silent []*scrapedEngine
	}{
		{"other upstreams", func() error {
			return s.reload(fmt.Sprintf(scraping, engineAddresses(b, c), "", "", ""))
		}, []*scrapedEngine{b, c}, []*scrapedEngine{a}},
		{"another timeout", func() error {
			return s.reload(fmt.Sprintf(scraping, engineAddresses(b, c), "timeout 1s", "", ""))
		}, []*scrapedEngine{b, c}, []*scrapedEngine{a}},
		{"another fleet", func() error {
			return s.reload(fmt.Sprintf(scraping, engineAddresses(a, c), "", "fleet other", ""))
		}, []*scrapedEngine{a, c}, []*scrapedEngine{b}},
		{"one that fails after the policy", func() error {
			config := string(s.adapt(fmt.Sprintf(scraping, engineAddresses(b), "", "", "")))
			if err := s.reloadJSON(strings.Replace(config, `"apps":{`, `"apps":{"nothing of that name":{},`, 1)); err == nil {
				return fmt.Errorf("a config with an unknown app was loaded")
			}
			return nil
		}, []*scrapedEngine{a, c}, []*scrapedEngine{b}},
		{"one that fails at the start", func() error {
			occupied, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			defer occupied.Close()
			if err := s.reload(fmt.Sprintf(scraping, engineAddresses(b), "", "", "") +
				"http://" + occupied.Addr().String() + " {\nrespond hello\n}\n"); err == nil {
				return fmt.Errorf("a config with an occupied port was loaded")
			}
			return nil
		}, []*scrapedEngine{a, c}, []*scrapedEngine{b}},
		{"without metrics", func() error {
			return s.reload(fmt.Sprintf(scraping, engineAddresses(b), "", "", "") + "{site1} {\nreverse_proxy " +
				engineAddresses(a, c) + " {\nlb_policy llm_loadaware {\nmetrics off\n}\n}\n}\n")
		}, []*scrapedEngine{b}, []*scrapedEngine{a, c}},
	} {
		if err := test.load(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var before []int
		for _, e := range test.silent {
			before = append(before, len(e.scrapes("/metrics"))+len(e.scrapes("/v1/models")))
		}
		scrapedAgain(t, 5, test.asked...)
		for i, e := range test.silent {
			if got := len(e.scrapes("/metrics")) + len(e.scrapes("/v1/models")); got != before[i] {
				t.Errorf("%s: an upstream that is not named was asked %d times", test.name, got-before[i])
			}
		}
	}
}

// scrapeTasks are how many goroutines run code of the modules in the background.
func scrapeTasks() int {
	n := 0
	for _, stack := range stacks() {
		if strings.Contains(stack, "caddymodule.(*scraper)") {
			n++
		}
	}
	return n
}

// Validating starts nothing and asks nobody.
func TestScrapeValidate(t *testing.T) {
	e := newEngine(t)
	s := newServer(t)
	config := s.adapt(fmt.Sprintf(scraping, e.address, "", "", ""))
	before := runtime.NumGoroutine()
	for range 20 {
		var c caddy.Config
		if err := json.Unmarshal(config, &c); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&c); err != nil {
			t.Fatal(err)
		}
		if n := scrapeTasks(); n != 0 {
			t.Fatalf("%d goroutines after validation", n)
		}
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+2 },
		func() string { return fmt.Sprintf("%d goroutines, %d before", runtime.NumGoroutine(), before) })
	if n := len(e.scrapes("/metrics")) + len(e.scrapes("/v1/models")); n != 0 {
		t.Errorf("the engine was asked %d times", n)
	}
}

// Any number of reloads leaves the goroutines of one config, and no connection.
func TestScrapeReloadsLeaveNothing(t *testing.T) {
	engines := []*scrapedEngine{newEngine(t), newEngine(t)}
	body := func(i int) string {
		return fmt.Sprintf(scraping, engineAddresses(engines...), fmt.Sprintf("timeout %dms", 2000+i), "", "")
	}
	s := start(t, body(0))
	reload := func(i int) {
		if err := s.reload(body(i)); err != nil {
			t.Fatal(err)
		}
		adminClient.CloseIdleConnections()
	}
	reload(1)
	scrapedAgain(t, 2, engines...)
	before := runtime.NumGoroutine()
	for i := range 200 {
		reload(2 + i)
		if i%10 == 0 {
			scrapedAgain(t, 1, engines...)
		}
	}
	if n := scrapeTasks(); n != len(engines) {
		t.Errorf("%d goroutines scrape, want %d", n, len(engines))
	}
	const tolerance = 10
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+tolerance }, func() string {
		stacks := make([]byte, 1<<20)
		return fmt.Sprintf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
	if err := s.reload("{site0} {\nrespond hello\n}\n"); err != nil {
		t.Fatal(err)
	}
	if n := scrapeTasks(); n != 0 {
		t.Errorf("%d goroutines scrape after the last policy", n)
	}
}

// A router asked for the load where there is none, said nothing, and placed at
// random.
//
// Whatever the engines say of themselves, or do not, requests are served and
// spread, and it is said once.
func TestCaseC53MissingLoadIsSaidOnce(t *testing.T) {
	fault := func(f vllmsim.MetricsFault) func(*scrapedEngine) {
		return func(e *scrapedEngine) { e.SetFault(vllmsim.Fault{Metrics: f}) }
	}
	page := func(page http.HandlerFunc) func(*scrapedEngine) {
		return func(e *scrapedEngine) { e.setPage(page) }
	}
	line := strings.Repeat("x", 99) + "\n"
	for _, test := range []struct {
		name  string
		spoil func(e *scrapedEngine)
		want  string
	}{
		{"missing", fault(vllmsim.MetricsMissing), "info engine has nothing to scrape /metrics status 404"},
		{"error", fault(vllmsim.MetricsError), "warn engine cannot be scraped /metrics status 500"},
		{"garbage", fault(vllmsim.MetricsGarbage), "warn engine cannot be scraped /metrics metrics: "},
		{"frozen", fault(vllmsim.MetricsFrozen), ""},
		{"zeros", fault(vllmsim.MetricsZeros), ""},
		{"slow", page(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), "warn engine cannot be scraped /metrics no whole answer within "},
		{"slow to its end", page(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "vllm:num_requests_running 1\n")
			flush(w)
			<-r.Context().Done()
		}), "warn engine cannot be scraped /metrics no whole answer within "},
		{"huge", page(func(w http.ResponseWriter, _ *http.Request) {
			for range 50 << 20 / len(line) {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		}), "warn engine cannot be scraped /metrics metrics: answer is longer than 4194304 bytes"},
		{"redirect", page(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/v1/models", http.StatusFound)
		}), "warn engine cannot be scraped /metrics status 302"},
	} {
		t.Run(test.name, func(t *testing.T) {
			sound, bad := newEngine(t), newEngine(t)
			test.spoil(bad)
			s := newServer(t)
			said := s.logging()
			timeout := ""
			if strings.HasPrefix(test.name, "slow") {
				timeout = "timeout 200ms"
			}
			s.run(s.adapt(fmt.Sprintf(scraping, engineAddresses(sound, bad), timeout, "", "")))
			scrapedAgain(t, 1, bad)
			before := runtime.NumGoroutine()
			const requests = 40
			for i := range requests {
				if status, text := exchange(t, s.sites[0], chatPath, asking("sim-model", words(fmt.Sprint(i), 300))); status != 200 {
					t.Fatalf("status %d: %s", status, text)
				}
			}
			if n := bad.Counts()[chatPath]; n < requests/3 || n > requests-requests/3 {
				t.Errorf("%d of %d requests were placed there, want about half", n, requests)
			}
			if test.name != "missing" {
				scrapedAgain(t, 5, bad)
			}
			eventually(t, func() bool { return test.want == "" || len(said()) > 0 }, func() string { return "nothing is said" })
			scrapedAgain(t, 3, sound)
			list := said()
			if test.want == "" && len(list) > 0 || test.want != "" && (len(list) != 1 || !strings.HasPrefix(list[0], test.want)) {
				t.Errorf("log is %q, want %q once", list, test.want)
			}
			eventually(t, func() bool { return runtime.NumGoroutine() <= before+10 },
				func() string { return fmt.Sprintf("%d goroutines, %d before", runtime.NumGoroutine(), before) })
			s.settled()
		})
	}
}

// A server that asks for a key where it lists its models is told of once, with
// the option that helps.
func TestScrapeKey(t *testing.T) {
	e := newEngineHandler(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") && r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	e.address = server.Listener.Addr().String()
	s := newServer(t)
	said := s.logging()
	s.run(s.adapt(fmt.Sprintf(scraping, e.address, "", "", "")))
	scrapedAgain(t, 15, e)
	want := "warn engine cannot be scraped /v1/models status 401: the header option of metrics sends credentials"
	if list := said(); !slices.Equal(list, []string{want}) {
		t.Errorf("log is %q, want %q", list, want)
	}

	t.Setenv("LOADAWARE_TEST_KEY", "secret")
	if err := s.reload(fmt.Sprintf(scraping, e.address,
		`header Authorization "Bearer {env.LOADAWARE_TEST_KEY}"`+"\nheader x-two a\nheader X-Two b", "", "")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(e.scrapes("/v1/models")) > 0 }, func() string { return "models are not asked for" })
	if got := e.scrapes("/v1/models")[0].header["X-Two"]; !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("X-Two = %q", got)
	}
	if list := said(); len(list) != 1 {
		t.Errorf("log is %q", list)
	}
}

// Metrics may be on another port and path; models are where the requests go.
func TestScrapePort(t *testing.T) {
	e, other := newEngine(t), newEngine(t)
	_, port, _ := net.SplitHostPort(other.address)
	start(t, strings.Replace(fmt.Sprintf(scraping, e.address, "port "+port, "", ""), "metrics /metrics", "metrics /metrics?x=1", 1))
	eventually(t, func() bool { return len(other.scrapes("/metrics?x=1")) > 2 && len(e.scrapes("/v1/models")) > 0 },
		func() string { return "the engine is not asked" })
	if n := len(e.scrapes("/metrics?x=1")) + len(other.scrapes("/v1/models")); n != 0 {
		t.Errorf("%d questions went to the wrong port", n)
	}
}

// Of several policies with one upstream, one asks it, and another does when that
// is gone.
func TestScrapeOnce(t *testing.T) {
	e := newEngine(t)
	site := func(n int) string {
		return strings.Replace(fmt.Sprintf(scraping, e.address, fmt.Sprintf("header X-Site %d", n), "", ""), "{site0}", fmt.Sprintf("{site%d}", n), 1)
	}
	s := start(t, site(0)+site(1)+site(2))
	askers := func() []string {
		scrapedAgain(t, 1, e) // what was under way in an earlier turn
		before := len(e.scrapes("/metrics"))
		scrapedAgain(t, 10, e)
		sites := map[string]bool{}
		for _, r := range e.scrapes("/metrics")[before:] {
			sites[r.header.Get("X-Site")] = true
		}
		return slices.Sorted(maps.Keys(sites))
	}
	if got := askers(); len(got) != 1 {
		t.Errorf("the policies of sites %v ask, want one", got)
	}
	for n := range 3 {
		if err := s.reload(site(n)); err != nil {
			t.Fatal(err)
		}
		if got := askers(); !slices.Equal(got, []string{fmt.Sprint(n)}) {
			t.Errorf("the policies of sites %v ask, want %d", got, n)
		}
	}
}

// Upstreams of a dynamic list are asked while they are in the last one.
func TestScrapeDynamicUpstreams(t *testing.T) {
	a, b := newEngine(t), newEngine(t)
	changing.Store(t.Name(), []string{a.address})
	defer changing.Delete(t.Name())
	s := start(t, fmt.Sprintf(scraping, "", "", "", "dynamic changing "+t.Name()))
	place := func() {
		t.Helper()
		if status, text := exchange(t, s.sites[0], chatPath, asking("sim-model", "hello")); status != 200 {
			t.Fatalf("status %d: %s", status, text)
		}
	}
	eventually(t, func() bool { return scrapeTasks() == 1 }, func() string {
		return fmt.Sprintf("%d goroutines before the first request, want the one that looks for upstreams", scrapeTasks())
	})
	place()
	scrapedAgain(t, 2, a)
	changing.Store(t.Name(), []string{b.address})
	place()
	scrapedAgain(t, 3, b)
	eventually(t, func() bool { return scrapeTasks() == 2 }, func() string { return "the old upstream is still asked" })
	before := len(a.scrapes("/metrics"))
	scrapedAgain(t, 5, b)
	if n := len(a.scrapes("/metrics")); n != before {
		t.Errorf("the old upstream was asked %d times", n-before)
	}
}

// Interface guards
var _ http.Handler = (*scrapedEngine)(nil)
