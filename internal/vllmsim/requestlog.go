// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxLogged is how many requests are remembered; bodies have their own, smaller limit.
const maxLogged = 10_000

// sessionHeaders are the headers that name a session, in the order in which they are looked for.
var sessionHeaders = []string{
	"X-Session-ID", "X-Claude-Code-Session-Id", "Session-Id", "Thread-Id", "X-Session-Affinity", "X-OpenWebUI-Chat-Id",
	"X-Litellm-Session-Id",
}

// Received is a request that reached a server.
type Received struct {
	Method, Path string
	// Session is the value of the first header that names a session.
	Session string
	Header  http.Header
	// Body is what arrived of the body; nil unless bodies are recorded and this one is among the last.
	Body []byte
}

// requestLog remembers what reached a server. It is safe for concurrent use.
type requestLog struct {
	bodies int

	mu     sync.Mutex
	counts map[string]int
	last   []Received
}

func newRequestLog(bodies int) *requestLog {
	return &requestLog{bodies: bodies, counts: map[string]int{}}
}

// add writes a request down. pattern is the route that serves it, or empty.
func (l *requestLog) add(r *http.Request, pattern string, body []byte) {
	_, path, ok := strings.Cut(pattern, " ")
	if !ok {
		path = "other"
	}
	entry := Received{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
	for _, name := range sessionHeaders {
		if entry.Session = r.Header.Get(name); entry.Session != "" {
			break
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[path]++
	if l.bodies > 0 {
		entry.Body = body
		if old := len(l.last) - l.bodies; old >= 0 {
			l.last[old].Body = nil
		}
	}
	if len(l.last) == maxLogged {
		l.last = slices.Delete(l.last, 0, maxLogged/2)
	}
	l.last = append(l.last, entry)
}

// Counts returns how many requests the server has received by route, such as "/v1/responses/{id}"; those of no route
// are counted as "other".
func (s *Server) Counts() map[string]int {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return maps.Clone(s.log.counts)
}

// Requests returns the last requests, at most 10,000, in order of arrival of their bodies' ends. A request that is cut
// off while its body arrives is among them.
func (s *Server) Requests() []Received {
	s.log.mu.Lock()
	defer s.log.mu.Unlock()
	return slices.Clone(s.log.last)
}
