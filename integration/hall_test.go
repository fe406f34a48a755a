// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
)

// hall is a number of upstreams that keep every request until the test lets it
// go. What is no POST is answered at once, and is no guest.
type hall struct {
	t         *testing.T
	upstreams []*upstream

	mu      sync.Mutex
	arrived []*guest
}

// guest is a request that an upstream has.
type guest struct {
	at   *upstream
	body string
	gone chan struct{}
}

func newHall(t *testing.T, n int) *hall {
	t.Helper()
	h := &hall{t: t}
	for range n {
		u := newUpstream(t, nil)
		u.setAnswer(func(w http.ResponseWriter, r *http.Request) { h.receive(u, w, r) })
		h.upstreams = append(h.upstreams, u)
	}
	return h
}

func (h *hall) receive(u *upstream, w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	body, _ := io.ReadAll(r.Body)
	g := &guest{at: u, body: string(body), gone: make(chan struct{})}
	h.mu.Lock()
	h.arrived = append(h.arrived, g)
	h.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	flush(w)
	if reached(r, g.gone) {
		answerAtOnce(w, r)
	}
}

// guest waits for the request that arrives as number n, from 0 on.
func (h *hall) guest(n int) (g *guest) {
	h.t.Helper()
	eventually(h.t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if len(h.arrived) > n {
			g = h.arrived[n]
		}
		return g != nil
	}, func() string { return fmt.Sprintf("request number %d does not arrive", n) })
	return g
}

// count is how many requests have arrived.
func (h *hall) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.arrived)
}

// leave lets a request go.
func (g *guest) leave() { close(g.gone) }

// visit is a request as its client sees it.
type visit struct {
	body   string
	cancel context.CancelFunc

	// done is closed when the response is there, or its error
	done   chan struct{}
	status int
	header http.Header
	text   string
	err    error
}

// visit sends a request.
func (h *hall) visit(site, path, body string, header ...string) *visit {
	ctx, cancel := context.WithCancel(h.t.Context())
	v := &visit{body: body, cancel: cancel, done: make(chan struct{})}
	h.t.Cleanup(cancel)
	go func() {
		defer close(v.done)
		res, err := send(ctx, site, path, body, header...)
		if v.err = err; err != nil {
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		v.status, v.header, v.text, v.err = res.StatusCode, res.Header, string(text), err
	}()
	return v
}

// ended waits for the end of a visit, and checks its status.
func (h *hall) ended(v *visit, status int) {
	h.t.Helper()
	<-v.done
	if v.err != nil || v.status != status {
		h.t.Errorf("status %d: %s, %v; want status %d", v.status, v.text, v.err, status)
	}
}

// waiting waits until so many requests wait for room.
func (s *server) waiting(class string, n int) {
	s.t.Helper()
	var last map[string]int
	eventually(s.t, func() bool {
		last = s.fleet().QueueWaiting
		return last[class] == n
	}, func() string { return fmt.Sprintf("waiting = %v, want %d %s", last, n, class) })
}
