// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// received is a request as an upstream saw it.
type received struct {
	method, path string
	header       http.Header
	body         string
}

// scraperAgent is the User-Agent of the policy's own questions.
const scraperAgent = "caddy-llm_loadaware"

// upstream is a server on loopback that records what it receives and answers as
// the test says. It is no vLLM: it has neither metrics nor a list of models, and
// does not record that it was asked for them.
type upstream struct {
	*httptest.Server

	mu       sync.Mutex
	requests []received
	answer   http.HandlerFunc
}

// newUpstream starts an upstream. answer may read the body again.
func newUpstream(t testing.TB, answer http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{answer: answer}
	u.Server = httptest.NewServer(unscraped(u.serve))
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	u.mu.Lock()
	u.requests = append(u.requests, received{r.Method, r.URL.Path, r.Header.Clone(), string(body)})
	answer := u.answer
	u.mu.Unlock()
	answer(w, r)
}

// unscraped answers the policy's own questions with status 404, and others as
// next does.
func unscraped(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == scraperAgent {
			http.NotFound(w, r)
			return
		}
		next(w, r)
	}
}

// setAnswer changes how the upstream answers from the next request on.
func (u *upstream) setAnswer(answer http.HandlerFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answer = answer
}

func (u *upstream) address() string { return u.Listener.Addr().String() }

// count is how many requests the upstream has received.
func (u *upstream) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.requests)
}

// last is the request received last.
func (u *upstream) last() received {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.requests) == 0 {
		return received{}
	}
	return u.requests[len(u.requests)-1]
}

// addresses joins the addresses of upstreams for a Caddyfile.
func addresses(upstreams []*upstream) string {
	list := make([]string, len(upstreams))
	for i, u := range upstreams {
		list[i] = u.address()
	}
	return strings.Join(list, " ")
}

// counts is how many requests each upstream has received.
func counts(upstreams []*upstream) []int {
	list := make([]int, len(upstreams))
	for i, u := range upstreams {
		list[i] = u.count()
	}
	return list
}

func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// newUpstreams starts n upstreams with the same answer.
func newUpstreams(t testing.TB, n int, answer http.HandlerFunc) []*upstream {
	t.Helper()
	list := make([]*upstream, n)
	for i := range list {
		list[i] = newUpstream(t, answer)
	}
	return list
}

// answerAtOnce streams a whole chat answer.
func answerAtOnce(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: [DONE]\n\n")
}

// stage is an answer that goes on when the test says so: headers at once, the
// first event after output, the end after end.
type stage struct {
	output, end chan struct{}
}

func newStage() *stage { return &stage{make(chan struct{}), make(chan struct{})} }

// answer is the upstream's side of the stage.
func (s *stage) answer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush(w)
	if !reached(r, s.output) {
		return
	}
	io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\n")
	flush(w)
	if reached(r, s.end) {
		io.WriteString(w, "data: [DONE]\n\n")
	}
}

// reached waits for a signal and reports false if the client leaves first.
func reached(r *http.Request, signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	case <-r.Context().Done():
		return false
	}
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush()
}
