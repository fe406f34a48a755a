// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// closing is an upstream that closes connections on which nothing is under way,
// at any moment. So does vLLM after five seconds, and the request that is on its
// way to it then is lost.
type closing struct {
	*httptest.Server
	received atomic.Int64

	mu   sync.Mutex
	idle map[net.Conn]bool
}

func newClosing(t *testing.T) *closing {
	t.Helper()
	c := &closing{idle: make(map[net.Conn]bool)}
	c.Server = httptest.NewUnstartedServer(unscraped(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		c.received.Add(1)
		answerAtOnce(w, r)
	}))
	c.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.idle, conn)
		if state == http.StateIdle {
			c.idle[conn] = true
		}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

// closeSome closes each idle connection with a chance of one in n.
func (c *closing) closeSome(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.idle {
		if rand.IntN(n) == 0 {
			conn.Close()
			delete(c.idle, conn)
		}
	}
}

// No client learns that an engine has closed a connection, nor is anyone blamed.
// A request that is sent in one piece is sent again by the transport itself, so
// it is placed and charged once. One of which a part was sent goes elsewhere.
func TestClosedConnectionsAreNoError(t *testing.T) {
	const clients = 8
	for _, test := range []struct {
		name         string
		size, rounds int
		once         bool

		// close closes one idle connection in so many
		close int
	}{
		{"small", 20, 150, true, 2},
		// more would let one request meet three of them, after which Caddy gives up
		{"500 KB", 125_000, 15, false, 40},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := []*closing{newClosing(t), newClosing(t), newClosing(t)}
			list := make([]string, len(upstreams))
			for i, u := range upstreams {
				list[i] = u.Listener.Addr().String()
			}
			s := productionAt(t, strings.Join(list, " "))
			body := chat(words("the request", test.size))
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for range test.rounds {
						// beside the requests, so that some are on their way
						for _, u := range upstreams {
							wg.Go(func() { u.closeSome(test.close) })
						}
						if status, text := exchange(t, s.sites[0], chatPath, body); status != http.StatusOK {
							t.Errorf("status %d: %s", status, text)
						}
					}
				})
			}
			wg.Wait()
			s.settled()
			requests := clients * test.rounds
			releases := nonzero(s.fleet().total().Releases)
			if releases["first_output"] != requests || test.once && len(releases) != 1 {
				t.Errorf("releases of %d requests = %v, want all by first output, nothing else: %v", requests, releases, test.once)
			}
			// a long request may be written whole before the reset comes, which is
			// what an engine that dies looks like
			most := 0.0
			if !test.once {
				most = 2
			}
			for _, address := range list {
				if load := s.failedLoadOf(address); load > most {
					t.Errorf("failed load = %v, want no more than %v", load, most)
				}
			}
		})
	}
}
