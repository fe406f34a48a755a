// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Host gives a server an address on the loopback interface, on a port that the kernel chooses once. It is safe for
// concurrent use. Close ends it and its server.
type Host struct {
	server *Server
	addr   string
	open   *connections

	mu     sync.Mutex
	http   *http.Server  // nil while connections are refused
	served chan struct{} // closed when http has left its accept loop
}

// NewHost starts to listen for a server and takes it over.
func NewHost(s *Server) (*Host, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on loopback: %w", err)
	}
	h := &Host{server: s, addr: listener.Addr().String(), open: newConnections()}
	h.serve(listener)
	return h, nil
}

// Server returns the server behind the address.
func (h *Host) Server() *Server { return h.server }

// Addr returns the address as host:port. It stays the same while the host is stopped.
func (h *Host) Addr() string { return h.addr }

// URL returns the address as http://host:port.
func (h *Host) URL() string { return "http://" + h.addr }

// Start accepts connections again after Stop. It fails if another process took the port meanwhile.
func (h *Host) Start() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.http != nil {
		return nil
	}
	listener, err := net.Listen("tcp", h.addr)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", h.addr, err)
	}
	h.serve(listener)
	return nil
}

// serve accepts connections in a goroutine that Stop ends.
func (h *Host) serve(listener net.Listener) {
	server := NewHTTPServer(h.server)
	server.ConnState = h.open.track
	served := make(chan struct{})
	h.http, h.served = server, served
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
}

// Stop refuses connections and closes those that are open, whatever they carry. The engine keeps its cache: with
// [Server.Restart] in between it is a crash of the process, without it a cut network.
func (h *Host) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.http == nil {
		return
	}
	_ = h.http.Close()
	<-h.served
	h.http = nil
}

// Restart does what a crash and an immediate start of the process do: every connection is reset, those that are idle
// too, and then [Server.Restart]. The address accepts connections throughout, unless the host is stopped.
func (h *Host) Restart() {
	h.open.reset()
	h.server.Restart()
}

// Close stops the host for good and closes its server.
func (h *Host) Close() {
	h.Stop()
	h.server.Close()
}

// NewHTTPServer returns an HTTP server for s with the limits of vLLM's: idle connections are closed after 5 seconds.
func NewHTTPServer(s *Server) *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, IdleTimeout: 5 * time.Second}
}
