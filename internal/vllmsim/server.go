// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxBody is the largest request body that is read.
const maxBody = 256 << 20

// Server is the HTTP interface of vLLM around one engine, or several that share its address. It is safe for concurrent
// use. Close ends its goroutines.
type Server struct {
	cfg      ServerConfig
	ranks    *ranks
	routes   *http.ServeMux
	log      *requestLog
	store    *responseStore
	inFlight atomic.Int64  // requests that carry a prompt
	lastID   atomic.Uint64 // of the ids made up for responses
	tasks    sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	frozen  string // what /metrics says under MetricsFrozen
	catalog *catalog
	started time.Time // of the process that the server pretends to be
	life    context.Context
	kill    context.CancelFunc // ends life
	closed  bool
}

// NewServer returns a running server.
func NewServer(cfg ServerConfig) *Server {
	cfg = cfg.withDefaults()
	s := &Server{
		cfg:     cfg,
		ranks:   newRanks(cfg),
		log:     newRequestLog(cfg.RecordBodies),
		store:   newResponseStore(),
		catalog: &catalog{models: cfg.Models},
		started: time.Now(),
	}
	s.life, s.kill = context.WithCancel(context.Background())
	s.routes = s.newRoutes()
	return s
}

// Close fails the requests in flight and ends the server's goroutines. Requests that arrive later are cut off. It may
// be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.kill()
	s.mu.Unlock()
	s.ranks.close()
	s.tasks.Wait()
}

// Config returns the config with defaults filled in.
func (s *Server) Config() ServerConfig { return s.cfg }

// Stats returns the engine's numbers as of the end of the last step, like /metrics. Those of several engines are added
// up, and KVUsage is the share of all their blocks.
func (s *Server) Stats() Stats { return sum(s.ranks.stats()) }

// RankStats returns the numbers of each engine, in the order of their numbers.
func (s *Server) RankStats() []Stats { return s.ranks.stats() }

// WithEngine runs f while no step begins and no request enters or leaves, once for each engine in the order of their
// numbers. f must not keep the engine or call the server.
func (s *Server) WithEngine(f func(*Engine)) { s.ranks.with(f) }

// Restart does what a crash and a new start of the process do: requests in flight are cut off, the cache, the counters
// and the stored responses are empty, the process has a new start time. Faults stay. Connections that are idle stay
// open; [Host.Restart] resets them too.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.kill()
	s.life, s.kill = context.WithCancel(context.Background())
	// /metrics shows milliseconds, and two starts must differ
	s.started = later(time.Now(), s.started.Add(10*time.Millisecond))
	s.ranks.restart()
	s.store.clear()
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lifetime returns a context that ends when the server is restarted or closed.
func (s *Server) lifetime() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// background returns a context of the server's lifetime for a task that Close waits for. The task ends with tasks.Done.
func (s *Server) background() (context.Context, context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		panic(http.ErrAbortHandler)
	}
	s.tasks.Add(1)
	return context.WithCancel(s.life)
}

// newRoutes returns the endpoints. Patterns are what [Server.Counts] counts by.
func (s *Server) newRoutes() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("POST /v1/chat/completions", s.prompted(s.chatCompletions))
	m.HandleFunc("POST /v1/completions", s.prompted(s.completions))
	m.HandleFunc("POST /v1/messages", s.prompted(s.messages))
	m.HandleFunc("POST /v1/responses", s.prompted(s.createResponse))
	m.HandleFunc("POST /v1/embeddings", s.prompted(s.embeddings))
	m.HandleFunc("POST /inference/v1/generate", s.prompted(s.generate))

	m.HandleFunc("POST /v1/messages/count_tokens", s.countTokens)
	m.HandleFunc("POST /tokenize", s.tokenize)
	m.HandleFunc("GET /v1/responses/{id}", s.getResponse)
	m.HandleFunc("DELETE /v1/responses/{id}", s.deleteResponse)
	m.HandleFunc("POST /v1/responses/{id}/cancel", s.cancelResponse)

	m.HandleFunc("GET /v1/models", s.models)
	m.HandleFunc("GET /health", s.health)
	m.HandleFunc("GET /ping", s.health)
	m.HandleFunc("POST /ping", s.health)
	m.HandleFunc("GET /load", s.load)
	m.HandleFunc("GET /version", s.version)
	m.HandleFunc("GET /metrics", s.metrics)

	m.HandleFunc("GET /sim/fault", s.getFault)
	m.HandleFunc("POST /sim/fault", s.postFault)
	m.HandleFunc("POST /sim/restart", s.postRestart)
	return m
}

// ServeHTTP reads the whole body, writes the request down and answers it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// a child of the server's life, because a restart must end it at once, and the client's leaving soon
	ctx, cancel := context.WithCancel(s.lifetime())
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_, pattern := s.routes.Handler(r)
	s.log.add(r, pattern, body)
	if err != nil || ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if !s.authorized(r) {
		writeJSON(w, http.StatusUnauthorized, object{"error": "Unauthorized"})
		return
	}
	r = r.WithContext(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.routes.ServeHTTP(w, r)
}

// authorized reports whether a request has the key that its path asks for.
func (s *Server) authorized(r *http.Request) bool {
	if s.cfg.APIKey == "" || !strings.HasPrefix(r.URL.Path, "/v1") {
		return true
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Bearer") && key == s.cfg.APIKey
}

// prompted wraps an endpoint that needs the engine: it counts the request and lets the fault in force spoil it.
func (s *Server) prompted(next func(http.ResponseWriter, *http.Request, Fault)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.inFlight.Add(1)
		defer s.inFlight.Add(-1)
		fault := s.takeFault()
		if !s.spoil(w, r, fault) {
			next(w, r, fault)
		}
	}
}

// Interface guard
var _ http.Handler = (*Server)(nil)
