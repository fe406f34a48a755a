// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"net"
	"net/http"
	"sync"
)

// connections are those that an HTTP server has open. It is safe for concurrent use.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newConnections() *connections {
	return &connections{open: map[net.Conn]struct{}{}}
}

// track is the ConnState of the server.
func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.open[conn] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// reset closes every connection in the way that tells the client of a failure.
func (c *connections) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		abort(conn)
	}
}

// abort closes a connection with a TCP reset where that is possible.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
