// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// mixedSite retries what a response asks for. A busy machine is no reason for a
// dial to fail, what fails says why, and no connection outlives its request:
// the test closes those it finds between two measurements, which a transport
// that keeps them alive may notice too late.
const mixedSite = `
{site0} {
	llm_loadaware
	reverse_proxy %s {
		lb_policy llm_loadaware
		lb_retries 2
		lb_retry_match ` + "`{rp.status_code} == 503`" + `
		transport http {
			dial_timeout 1m
			keepalive off
		}
	}
	handle_errors {
		respond "{err.message}" {err.status_code}
	}
}
`

// kindHeader tells the upstream how to answer, and idHeader which request it is.
const (
	kindHeader = "X-Kind"
	idHeader   = "X-Id"
)

// mixedKinds are the ways in which a request may end, each with the body that
// it is sent with.
var mixedKinds = []struct{ name, method, body string }{
	{"streamed", http.MethodPost, chat("hello")},
	{"unstreamed", http.MethodPost, unstreamed(chat("hello"))},
	{"long", http.MethodPost, chat(words("a longer prompt", 2000))},
	{"500", http.MethodPost, chat("hello")},
	{"503", http.MethodPost, chat("hello")},
	{"400", http.MethodPost, chat("hello")},
	{"reset", http.MethodPost, chat("hello")},
	{"reset in the middle", http.MethodPost, chat("hello")},
	{"leaves before headers", http.MethodPost, chat("hello")},
	{"leaves before output", http.MethodPost, chat("hello")},
	{"leaves in the middle", http.MethodPost, chat("hello")},
	{"bad JSON", http.MethodPost, `{"model":"m","messages":[`},
	{"empty", http.MethodPost, ""},
	{"get", http.MethodGet, ""},
}

// mixed is a crowd of clients and their upstreams.
type mixed struct {
	client *http.Client

	// arrived has a channel for each request that waits to be received
	arrived sync.Map
}

// answer does what the request's kind says.
func (m *mixed) answer(w http.ResponseWriter, r *http.Request) {
	kind := r.Header.Get(kindHeader)
	if arrived, ok := m.arrived.LoadAndDelete(r.Header.Get(idHeader)); ok {
		close(arrived.(chan struct{}))
	}
	switch kind {
	case "500", "503", "400":
		status, _ := strconv.Atoi(kind)
		fails(status)(w, r)
	case "bad JSON", "empty":
		fails(http.StatusBadRequest)(w, r)
	case "reset":
		reset(w)
	case "reset in the middle":
		conn := hijack(w)
		defer conn.Close()
		io.WriteString(conn, eventStreamHeader+firstEventChunk)
	case "leaves before headers":
		<-r.Context().Done()
	case "leaves before output", "leaves in the middle":
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": ok\n\n")
		if kind == "leaves in the middle" {
			io.WriteString(w, "data: {}\n\n")
		}
		flush(w)
		<-r.Context().Done()
	case "unstreamed", "get":
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}")
	default:
		answerAtOnce(w, r)
	}
}

// request sends the i-th request and plays the client's part of it.
func (m *mixed) request(ctx context.Context, site string, i int) error {
	kind := mixedKinds[i%len(mixedKinds)]
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	r, err := http.NewRequestWithContext(ctx, kind.method, "http://"+site+chatPath, strings.NewReader(kind.body))
	if err != nil {
		return err
	}
	id := fmt.Sprint(i)
	r.Header.Set(kindHeader, kind.name)
	r.Header.Set(idHeader, id)
	if i%3 == 0 {
		r.Header.Set("X-Session-Id", fmt.Sprint("session ", i%50))
	}
	if kind.name == "leaves before headers" {
		arrived := make(chan struct{})
		m.arrived.Store(id, arrived)
		go func() {
			select {
			case <-arrived:
			case <-ctx.Done():
			}
			leave()
		}()
	}
	res, err := m.client.Do(r)
	if err != nil {
		if kind.name == "leaves before headers" {
			return nil
		}
		return fmt.Errorf("%s: %w", kind.name, err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(kind.name, "leaves ") {
		_, err := io.ReadFull(res.Body, make([]byte, 1))
		return err
	}
	text, err := io.ReadAll(res.Body)
	if strings.HasPrefix(kind.name, "reset") {
		return nil
	}
	want := map[string]int{"500": 500, "503": 503, "400": 400, "bad JSON": 400, "empty": 400}[kind.name]
	if want == 0 {
		want = http.StatusOK
	}
	if res.StatusCode != want {
		return fmt.Errorf("%s: status %d, want %d: %s", kind.name, res.StatusCode, want, text)
	}
	return err
}

// One router kept something of every request until it was killed for its memory,
// another one stopped to send requests on after some hours.
//
// Of ten thousand requests that end in every way there is, a thousand at a
// time, nothing is left: no request, no token, no goroutine.
func TestCaseC22C57EveryEndLeavesNothing(t *testing.T) {
	requests, concurrent := 10_000, 1000
	if testing.Short() {
		requests, concurrent = 1000, 200
	}
	transport := &http.Transport{MaxIdleConnsPerHost: concurrent}
	m := &mixed{client: &http.Client{Transport: transport}}
	upstreams := newUpstreams(t, 4, m.answer)
	s := start(t, fmt.Sprintf(mixedSite, addresses(upstreams)))

	// only what appears once and stays may be there before
	for i := range mixedKinds {
		if err := m.request(t.Context(), s.sites[0], i); err != nil {
			t.Fatal(err)
		}
	}
	quiet := func() {
		s.settled()
		transport.CloseIdleConnections()
		adminClient.CloseIdleConnections()
		for _, u := range upstreams {
			u.CloseClientConnections()
		}
	}
	quiet()
	before := runtime.NumGoroutine()

	slots := make(chan struct{}, concurrent)
	var wg sync.WaitGroup
	for i := range requests {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := m.request(t.Context(), s.sites[0], i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	quiet()

	const tolerance = 10
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+tolerance }, func() string {
		stacks := make([]byte, 1<<20)
		return fmt.Sprintf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
	f := s.fleet()
	causes := f.total().Releases
	for _, cause := range []string{"first_output", "error", "canceled", "retried"} {
		if causes[cause] == 0 {
			t.Errorf("causes = %v, want some of %s", causes, cause)
		}
	}
	if f.Sessions > 50 {
		t.Errorf("sessions = %d, want no more than there were", f.Sessions)
	}
}
