// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/caddy-llm/loadaware/fleet"
)

const (
	goodMetrics = "vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
	asleep      = goodMetrics + "vllm:engine_sleep_state{sleep_state=\"awake\"} 0\n" +
		"vllm:engine_sleep_state{sleep_state=\"discard_all\"} 1\n"
	goodModels = `{"object":"list","data":[{"id":"m"}]}`
)

// engine is an upstream without sockets, for tests in virtual time.
type engine struct {
	mu    sync.Mutex
	asked []asked
	// answer is how the engine answers, by path; 404 where it is missing
	answers map[string]func(r *http.Request) (int, io.Reader, error)
}

type asked struct {
	at   time.Time
	path string
}

// RoundTrip implements http.RoundTripper.
func (e *engine) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	e.asked = append(e.asked, asked{time.Now(), r.URL.Path})
	answer := e.answers[r.URL.Path]
	e.mu.Unlock()
	if answer == nil {
		answer = status(http.StatusNotFound)
	}
	code, body, err := answer(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(body)}, nil
}

func (e *engine) set(path string, answer func(*http.Request) (int, io.Reader, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.answers == nil {
		e.answers = map[string]func(*http.Request) (int, io.Reader, error){}
	}
	e.answers[path] = answer
}

// times returns when a path was asked for, and forgets it.
func (e *engine) times(path string) (times []time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.asked {
		if a.path == path {
			times = append(times, a.at)
		}
	}
	e.asked = slices.DeleteFunc(e.asked, func(a asked) bool { return a.path == path })
	return times
}

func text(s string) func(*http.Request) (int, io.Reader, error) {
	return func(*http.Request) (int, io.Reader, error) { return http.StatusOK, strings.NewReader(s), nil }
}

func status(code int) func(*http.Request) (int, io.Reader, error) {
	return func(*http.Request) (int, io.Reader, error) { return code, strings.NewReader("no"), nil }
}

// silent waits until the one who asks gives up.
func silent(r *http.Request) (int, io.Reader, error) {
	<-r.Context().Done()
	return 0, nil, r.Context().Err()
}

// newTestScraper returns a scraper of the upstream a:1 and what it logs.
func newTestScraper(t *testing.T, transport http.RoundTripper, config Metrics) (*scraper, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	config.setDefaults()
	state := fleet.New(rand.Uint64)
	state.List([]string{"a:1"})
	return &scraper{
		config: &config, logger: zap.New(core), fleet: state, owners: newScrapeOwners(),
		proxy: &reverseproxy.Handler{Transport: transport}, listed: []string{"a:1"},
		dynamic: func() []string { return nil }, tasks: tasks{life: t.Context()}, asked: map[string]context.CancelFunc{},
	}, logs
}

// lines are the logged entries as level and message, with the page.
func lines(logs *observer.ObservedLogs) (list []string) {
	for _, e := range logs.TakeAll() {
		list = append(list, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()["page"]))
	}
	return list
}

func sameLines(t *testing.T, when string, logs *observer.ObservedLogs, want ...string) {
	t.Helper()
	if got := lines(logs); !slices.Equal(got, want) {
		t.Errorf("%s: log is %q, want %q", when, got, want)
	}
}

func view(s *scraper) fleet.UpstreamView { return s.fleet.View(time.Now()).Upstreams[0] }

// Metrics are asked for every second and models every ten, give or take a
// tenth.
func TestScrapeCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		e.set("/metrics", text(goodMetrics))
		e.set("/v1/models", text(goodModels))
		s, logs := newTestScraper(t, e, Metrics{})
		began := time.Now()
		s.start()
		time.Sleep(10 * time.Minute)
		s.stop()
		for path, interval := range map[string]time.Duration{"/metrics": time.Second, "/v1/models": modelsInterval} {
			times := e.times(path)
			if first := times[0].Sub(began); first >= time.Second {
				t.Errorf("%s is asked for after %s, want within a second", path, first)
			}
			even := true
			for i := range times[1:] {
				pause := times[i+1].Sub(times[i])
				if pause < interval*9/10 || pause > interval*11/10 {
					t.Errorf("%s is asked for again after %s, want about %s", path, pause, interval)
				}
				even = even && pause == interval
			}
			if even || len(times) < 50 {
				t.Errorf("%s is asked for %d times, all at the same distance: %t", path, len(times), even)
			}
		}
		time.Sleep(time.Hour)
		if n := len(e.times("/metrics")); n != 0 {
			t.Errorf("asked %d times after the end", n)
		}
		sameLines(t, "all is well", logs)
	})
}

// What an engine says is believed for three intervals, and longer where the
// timeout is.
func TestScrapeValidity(t *testing.T) {
	for _, test := range []struct {
		name           string
		config         Metrics
		report, models time.Duration
	}{
		{"defaults", Metrics{}, 4 * time.Second, 30 * time.Second},
		{"long interval", Metrics{Interval: caddy.Duration(5 * time.Second)}, 15 * time.Second, 30 * time.Second},
		{"long timeout", Metrics{Timeout: caddy.Duration(time.Minute)}, 61 * time.Second, 70 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := new(engine)
				s, _ := newTestScraper(t, e, test.config)
				// each page answers once
				for path, page := range map[string]string{"/metrics": asleep, "/v1/models": goodModels} {
					e.set(path, func(r *http.Request) (int, io.Reader, error) {
						e.set(path, silent)
						return text(page)(r)
					})
				}
				s.start()
				var report, models time.Duration
				const step = 10 * time.Millisecond
				for range 2 * time.Minute / step {
					time.Sleep(step)
					if view(s).State == "asleep" {
						report += step
					}
					if view(s).Models != nil {
						models += step
					}
				}
				if (report-test.report).Abs() > step || (models-test.models).Abs() > step {
					t.Errorf("a report is believed for %s and models for %s, want %s and %s", report, models, test.report, test.models)
				}
				s.stop()
			})
		})
	}
}

// A page is complained of once while nothing changes, and not while what was
// read last is still believed.
func TestScrapeLogsChanges(t *testing.T) {
	const (
		cannot  = "warn engine cannot be scraped "
		nothing = "info engine has nothing to scrape "
		again   = "info engine can be scraped again "
	)
	refused := func(*http.Request) (int, io.Reader, error) { return 0, nil, errors.New("connection refused") }
	broken := func(*http.Request) (int, io.Reader, error) {
		return http.StatusOK, io.MultiReader(strings.NewReader(goodMetrics), failingReader{}), nil
	}
	long := func(*http.Request) (int, io.Reader, error) { return http.StatusOK, endless{}, nil }
	for _, test := range []struct {
		name            string
		metrics, models func(*http.Request) (int, io.Reader, error)
		want, after     []string
	}{
		{"refused", refused, refused, []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"silent", silent, silent, []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"error status", status(500), text(goodModels), []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"redirect", status(302), text(goodModels), []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"breaks off", broken, text(goodModels), []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"endless", long, text(goodModels), []string{cannot + "/metrics"}, []string{again + "/metrics"}},
		{"another engine", text("llamacpp:requests_processing 1\n"), text(goodModels), []string{nothing + "/metrics"}, []string{again + "/metrics"}},
		{"no metrics", status(404), text(goodModels), []string{nothing + "/metrics"}, []string{again + "/metrics"}},
		{"metrics not compiled in", status(501), text(goodModels), []string{nothing + "/metrics"}, []string{again + "/metrics"}},
		{"no models", text(goodMetrics), status(404), []string{"debug engine has nothing to scrape /v1/models"}, []string{"debug engine can be scraped again /v1/models"}},
		{"models for a key", text(goodMetrics), status(401), []string{cannot + "/v1/models"}, []string{again + "/v1/models"}},
		{"models are no list", text(goodMetrics), text("{}"), []string{cannot + "/v1/models"}, []string{again + "/v1/models"}},
		{"models are endless", text(goodMetrics), long, []string{cannot + "/v1/models"}, []string{again + "/v1/models"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := new(engine)
				s, logs := newTestScraper(t, e, Metrics{Interval: caddy.Duration(10 * time.Second)})
				e.set("/metrics", test.metrics)
				e.set("/v1/models", test.models)
				s.start()
				time.Sleep(2 * time.Minute)
				sameLines(t, "from the start", logs, test.want...)
				e.set("/metrics", text(goodMetrics))
				e.set("/v1/models", text(goodModels))
				time.Sleep(2 * time.Minute)
				sameLines(t, "when all is well", logs, test.after...)
				e.set("/metrics", test.metrics)
				e.set("/v1/models", test.models)
				time.Sleep(2 * time.Minute)
				sameLines(t, "later", logs, test.want...)
				s.stop()
			})
		})
	}
}

// One lost answer now and then is nothing to tell of, but it is counted.
func TestScrapeLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		e.set("/v1/models", text(goodModels))
		n := 0
		e.set("/metrics", func(r *http.Request) (int, io.Reader, error) {
			if n++; n%2 == 0 {
				return status(503)(r)
			}
			return text(goodMetrics)(r)
		})
		s, logs := newTestScraper(t, e, Metrics{})
		s.start()
		time.Sleep(time.Minute)
		s.stop()
		sameLines(t, "every second answer is lost", logs)
		if got := view(s).Totals.ScrapeErrors; got != uint64(n/2) {
			t.Errorf("scrape errors = %d, want %d", got, n/2)
		}
	})
}

// A server without metrics of vLLM is asked every minute, and every second once
// it has them.
func TestScrapeAbsentMetricsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		s, _ := newTestScraper(t, e, Metrics{})
		s.start()
		time.Sleep(time.Hour)
		for _, path := range []string{"/metrics", "/v1/models"} {
			if n := len(e.times(path)); n < 55 || n > 67 {
				t.Errorf("%s was asked for %d times in an hour, want about 60", path, n)
			}
		}
		e.set("/metrics", text(goodMetrics))
		time.Sleep(2 * time.Minute)
		e.times("/metrics")
		time.Sleep(time.Minute)
		if n := len(e.times("/metrics")); n < 54 || n > 67 {
			t.Errorf("metrics were asked for %d times in a minute, want about 60", n)
		}
		s.stop()
	})
}

// A transport that panics is reported and left alone for a while, and an engine
// behind it is scraped when it no longer does.
func TestScrapePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		e.set("/v1/models", text(goodModels))
		e.set("/metrics", func(*http.Request) (int, io.Reader, error) { panic("no") })
		s, logs := newTestScraper(t, e, Metrics{})
		s.start()
		time.Sleep(90 * time.Second)
		if n := logs.FilterMessage("scraping engines panicked").FilterFieldKey("stack").Len(); n != 2 {
			t.Errorf("panics are logged %d times in 90 seconds, want 2", n)
		}
		e.set("/metrics", text(goodMetrics))
		time.Sleep(time.Minute)
		if view(s).Reported.IsZero() {
			t.Error("there is no report")
		}
		s.stop()
	})
}

// Stopping ends the question under way, before and after a start, and twice.
func TestScrapeStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		e.set("/metrics", silent)
		e.set("/v1/models", silent)
		s, logs := newTestScraper(t, e, Metrics{Timeout: caddy.Duration(time.Hour)})
		s.start()
		time.Sleep(2 * time.Second)
		began := time.Now()
		s.stop()
		s.stop()
		s.start()
		if took := time.Since(began); took != 0 {
			t.Errorf("stopping took %s", took)
		}
		sameLines(t, "a question that was given up", logs)
		if len(s.owners.byName) != 0 {
			t.Error("the upstream is still claimed")
		}
		if n := view(s).Totals.ScrapeErrors; n != 0 {
			t.Errorf("scrape errors = %d, want 0", n)
		}
		never, _ := newTestScraper(t, e, Metrics{})
		never.stop()
		never.start()
		(*scraper)(nil).stop()
	})
}

// A dynamic list is followed; what was not in the last one is left alone, what
// is listed never is.
func TestScrapeFollowsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := new(engine)
		s, logs := newTestScraper(t, e, Metrics{})
		var mu sync.Mutex
		var list []string
		s.dynamic = func() []string { mu.Lock(); defer mu.Unlock(); return list }
		s.proxy.DynamicUpstreams = reverseproxy.SRVUpstreams{}
		s.start()
		for _, test := range []struct{ list, want []string }{
			{nil, []string{"a:1"}},
			{[]string{"b:1", "c:1"}, []string{"a:1", "b:1", "c:1"}},
			{[]string{"c:1", "{x}:1", "a:1-2", "a:b"}, []string{"a:1", "c:1"}},
			{[]string{}, []string{"a:1"}},
			{[]string{"b:1"}, []string{"a:1", "b:1"}},
		} {
			mu.Lock()
			list = test.list
			mu.Unlock()
			time.Sleep(2 * time.Second)
			s.owners.mu.Lock()
			var got []string
			for name := range s.owners.byName {
				got = append(got, name)
			}
			s.owners.mu.Unlock()
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("with %v: %v are scraped, want %v", test.list, got, test.want)
			}
		}
		if n := logs.FilterMessage("upstream is not scraped").Len(); n != 3 {
			t.Errorf("%d upstreams are said not to be scraped, want 3", n)
		}
		s.stop()
	})
}

// endless is a page without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
