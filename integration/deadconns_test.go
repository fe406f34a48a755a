// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// doomed is an upstream whose connections die on request: the next bytes that come
// on one of them are answered with a reset. New ones are well.
type doomed struct {
	*httptest.Server

	// held keeps the requests that come, so that each needs a connection
	held    *stage
	arrived chan struct{}

	mu    sync.Mutex
	conns []*doomedConn
}

// doomedConn is a connection that may have died.
type doomedConn struct {
	*net.TCPConn
	dead atomic.Bool
}

// Read implements net.Conn.
func (c *doomedConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if err == nil && c.dead.Load() {
		_ = c.SetLinger(0)
		c.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// doomedListener makes the connections of a doomed upstream.
type doomedListener struct {
	net.Listener
	of *doomed
}

// Accept implements net.Listener.
func (l doomedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &doomedConn{TCPConn: conn.(*net.TCPConn)}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.conns = append(l.of.conns, c)
	return c, nil
}

func newDoomed(t *testing.T) *doomed {
	t.Helper()
	d := &doomed{held: newStage(), arrived: make(chan struct{}, 100)}
	d.Server = httptest.NewUnstartedServer(unscraped(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		if r.Header.Get(kindHeader) == "held" {
			d.arrived <- struct{}{}
			reached(r, d.held.end)
		}
		answerAtOnce(w, r)
	}))
	d.Listener = doomedListener{d.Listener, d}
	d.Start()
	t.Cleanup(func() {
		d.CloseClientConnections()
		d.Close()
	})
	return d
}

// die lets every connection that is open die.
func (d *doomed) die() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		// so that a long request is not on its way as a whole when it meets the reset
		_ = c.SetReadBuffer(16 << 10)
		c.dead.Store(true)
	}
	d.conns = nil
}

// However many connections the upstreams have closed, a long request gets through:
// it meets one of them, and goes on with a new one.
func TestManyDeadConnectionsAreNoError(t *testing.T) {
	const each, rounds = 4, 4
	upstreams := []*doomed{newDoomed(t), newDoomed(t), newDoomed(t)}
	var list []string
	for _, d := range upstreams {
		list = append(list, d.Listener.Addr().String())
	}
	s := productionAt(t, strings.Join(list, " "))
	long := chat(words("the request", 1_500_000))
	for round := range rounds {
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(withPatience(t))
		for i := range each * len(upstreams) {
			wg.Go(func() {
				res, err := send(ctx, s.sites[0], chatPath, chat(words(fmt.Sprint(round, i), 300)), kindHeader, "held")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			})
		}
		for _, d := range upstreams {
			for range each {
				select {
				case <-d.arrived:
				case <-ctx.Done():
					t.Fatal("a request does not arrive")
				}
			}
		}
		for _, d := range upstreams {
			close(d.held.end)
		}
		wg.Wait()
		cancel()
		s.settled()
		for _, d := range upstreams {
			d.held.end = make(chan struct{})
			d.die()
		}
		before := s.fleet().total().Releases
		if status, text := exchange(t, s.sites[0], chatPath, long); status != http.StatusOK {
			t.Errorf("status %d: %s", status, text)
		}
		s.settled()
		got := since(before, s.fleet().total().Releases)
		if got["first_output"] != 1 || got["retried"] > 1 || sum(got) > 2 {
			t.Errorf("releases = %v, want one by first output after no more than one retry", got)
		}
	}
}
