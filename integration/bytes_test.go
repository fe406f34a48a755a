// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// siteConfig is one site with the handler and a proxy: addresses, options of
// the handler as a block or nothing, options of the proxy.
const siteConfig = `
{site0} {
	llm_loadaware %[2]s
	reverse_proxy %[1]s {
		lb_policy llm_loadaware
		%[3]s
	}
}
{site1} {
	reverse_proxy %[1]s
}
`

// retry503 retries a POST once on a connection that was refused and on a 503.
const retry503 = `
		lb_retries 1
		lb_retry_match {
			method POST
			expression {rp.status_code} == 503
		}
`

// oddBody is JSON that does not survive decoding and encoding.
const oddBody = "\t{ \"z\" : 1e400,\r\n\"stream\":true, \"model\":\"first\",\"model\":\"m\"," +
	"\"seed\":123456789012345678901234567890,\"messages\" : [ {\"content\":" +
	"\"\\u00e9\u00e9\\/\\ud83d\\ude00\U0001F600 <&>\u2028\",\"role\":\"user\"} ],\"a\":-0.0,\"a\":null }\r\n\n"

// newRawUpstream starts an upstream that reads its requests itself.
func newRawUpstream(t testing.TB, serve http.HandlerFunc) *upstream {
	t.Helper()
	u := &upstream{Server: httptest.NewServer(unscraped(serve))}
	t.Cleanup(func() {
		u.CloseClientConnections()
		u.Close()
	})
	return u
}

// unsized hides the length of a reader, so that it is sent chunked.
type unsized struct{ io.Reader }

// withPatience is a context for exchanges that hang where they fail.
func withPatience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// arrival is what an upstream received of a body.
type arrival struct {
	length  int64
	body    string
	trailer http.Header
}

// arrivals collects what several upstreams receive, in order.
type arrivals struct {
	mu   sync.Mutex
	list []arrival
}

// record adds a request whose body can still be read.
func (a *arrivals) record(r *http.Request) int {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, arrival{r.ContentLength, string(body), r.Trailer.Clone()})
	return len(a.list)
}

func (a *arrivals) take() []arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.list
	a.list = nil
	return taken
}

// Routers that decode requests and encode them again lose the fields that they do
// not know.
func TestCaseC59RequestsAreByteExact(t *testing.T) {
	large := `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("\\u0041 \u00e9 ", 300_000) + "\"}]}\n"
	bodies := []struct{ name, body string }{
		{"odd", oddBody},
		{"large", large},
		{"not JSON", "\x00\xff{[\"\n"},
	}
	for _, test := range []struct {
		name, handler, proxy string
		fails                bool // the first answer of every request is a 503
		dead                 bool // one upstream refuses connections
	}{
		{name: "at once"},
		{name: "over max_body", handler: "{\n\tmax_body 20B\n}"},
		{name: "with request_buffers", proxy: "request_buffers 1MiB"},
		{name: "after a 503", proxy: retry503, fails: true},
		{name: "after a 503 with header_up", proxy: retry503 + "header_up X-Added yes", fails: true},
		{name: "after a 503 with request_buffers", proxy: retry503 + "request_buffers 16MiB", fails: true},
		{name: "after a refused connection", proxy: "lb_retries 1", dead: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got arrivals
			answer := func(w http.ResponseWriter, r *http.Request) {
				if n := got.record(r); test.fails && n == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				answerAtOnce(w, r)
			}
			list := addresses(newUpstreams(t, 2, answer))
			if test.dead {
				list = "{dead} " + newUpstream(t, answer).address()
			}
			s := start(t, fmt.Sprintf(siteConfig, list, test.handler, test.proxy))
			attempts := 1
			if test.fails {
				attempts = 2
			}
			for _, b := range bodies {
				for _, chunked := range []bool{false, true} {
					var body io.Reader = strings.NewReader(b.body)
					want := int64(len(b.body))
					if chunked {
						body, want = unsized{body}, -1
					}
					r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+chatPath, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					res, err := client.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode != http.StatusOK {
						t.Errorf("%s, chunked %v: status %d", b.name, chunked, res.StatusCode)
					}
					received := got.take()
					if len(received) != attempts {
						t.Errorf("%s, chunked %v: received %d times, want %d", b.name, chunked, len(received), attempts)
					}
					for i, a := range received {
						if a.body != b.body {
							t.Errorf("%s, chunked %v, attempt %d: received %d other bytes, want the %d that were sent",
								b.name, chunked, i+1, len(a.body), len(b.body))
						}
						// Caddy's own request_buffers set the length of what they hold whole
						if a.length != want && !strings.Contains(test.proxy, "request_buffers") {
							t.Errorf("%s, chunked %v, attempt %d: Content-Length %d, want %d", b.name, chunked, i+1, a.length, want)
						}
					}
				}
			}
			retried := s.fleet().total().Releases["retried"]
			if test.fails && retried != 2*len(bodies) || test.dead && retried == 0 {
				t.Errorf("releases by a retry = %d", retried)
			}
			s.settled()
		})
	}
}

// The client waits for the permission to send its body, which the handler gives
// by reading it.
func TestRequestThatExpectsContinue(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
	waits := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: patience}}
	r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+chatPath, strings.NewReader(oddBody))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Expect", "100-continue")
	res, err := waits.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if got := u.last().body; got != oddBody {
		t.Errorf("received %q, want %q", got, oddBody)
	}
	s.settled()
}

// What the modules add to a request is an empty Idempotency-Key, and that only
// where the client has sent none.
func TestRequestHeaders(t *testing.T) {
	u := newUpstream(t, answerAtOnce)
	s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
	sent := []string{"X-Session-ID", "s", "Authorization", "Bearer t", "Accept-Encoding", "br", "User-Agent", "test", "X-Odd", " a,b "}
	headerAt := func(site string, header ...string) http.Header {
		exchange(t, site, chatPath, chat("hello"), header...)
		h := u.last().header
		delete(h, "X-Forwarded-Host")
		return h
	}
	got, want := headerAt(s.sites[0], sent...), headerAt(s.sites[1], sent...)
	if key := got["Idempotency-Key"]; !slices.Equal(key, []string{""}) {
		t.Errorf("Idempotency-Key = %q, want one empty value", key)
	}
	delete(got, "Idempotency-Key")
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("header = %v, want that of the proxy alone %v", got, want)
	}
	got = headerAt(s.sites[0], "Idempotency-Key", "of the client")
	if key := got["Idempotency-Key"]; !slices.Equal(key, []string{"of the client"}) {
		t.Errorf("Idempotency-Key = %q, want the client's", key)
	}
	s.settled()
}

func TestRequestTrailers(t *testing.T) {
	var got arrivals
	failing := atomic.Bool{}
	answer := func(w http.ResponseWriter, r *http.Request) {
		got.record(r)
		if failing.CompareAndSwap(true, false) {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		answerAtOnce(w, r)
	}
	for _, test := range []struct {
		name, path, handler string
		site                int
		fails               bool
	}{
		{"proxy alone", chatPath, "", 1, false},
		{"read whole", chatPath, "", 0, false},
		{"over max_body", chatPath, "{\n\tmax_body 20B\n}", 0, false},
		{"unread", "/v1/files", "", 0, false},
		{"read whole, after a 503", chatPath, "", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			upstreams := newUpstreams(t, 2, answer)
			s := start(t, fmt.Sprintf(siteConfig, addresses(upstreams), test.handler, retry503))
			failing.Store(test.fails)
			r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost,
				"http://"+s.sites[test.site]+test.path, unsized{strings.NewReader(oddBody)})
			if err != nil {
				t.Fatal(err)
			}
			r.Trailer = http.Header{"X-Checksum": {"abc"}, "X-Second": {"1", "2"}}
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			_, _ = io.Copy(io.Discard, res.Body)
			if res.StatusCode != http.StatusOK {
				t.Errorf("status %d", res.StatusCode)
			}
			for i, a := range got.take() {
				if a.body != oddBody {
					t.Errorf("attempt %d: received %q, want %q", i+1, a.body, oddBody)
				}
				if !maps.EqualFunc(a.trailer, r.Trailer, slices.Equal[[]string]) {
					t.Errorf("attempt %d: trailer %v, want %v", i+1, a.trailer, r.Trailer)
				}
			}
			if test.site == 0 {
				s.settled()
			}
		})
	}
}

// everyByte holds each value of a byte, and more than fits into one buffer.
var everyByte = func() []byte {
	b := make([]byte, 100_000)
	for i := range b {
		b[i] = byte(i ^ i>>8)
	}
	return b
}()

// One router cut responses whose length was said twice, and another one made the
// error that an engine answers with into a stream with status 200.
func TestCaseC33C34ResponsesAreByteExact(t *testing.T) {
	badRequest := []byte("{\"error\": {\"message\":\"bad \\u00e9\",  \"code\":400}}\n")
	for _, test := range []struct {
		name   string
		method string
		answer http.HandlerFunc

		status      int
		contentType string
		orNone      bool // no content type is as good
		body        []byte
		length      int64
		trailer     http.Header
		early       int // informational responses
	}{
		{
			name: "content length", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", fmt.Sprint(len(everyByte)))
				w.Write(everyByte)
			},
			status: 200, contentType: "application/json", body: everyByte, length: int64(len(everyByte)),
		},
		{
			name: "chunked", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/octet-stream")
				for chunk := range slices.Chunk(everyByte, 777) {
					w.Write(chunk)
					flush(w)
				}
			},
			status: 200, contentType: "application/octet-stream", body: everyByte, length: -1,
		},
		{
			name: "no content type", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = nil
				w.Write(everyByte)
				flush(w)
			},
			// net/http on Caddy's side may guess one, as it may behind the proxy alone
			status: 200, contentType: "application/octet-stream", orNone: true, body: everyByte, length: -1,
		},
		{
			name: "events that are none", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				w.Write(everyByte)
				flush(w)
			},
			status: 200, contentType: "text/event-stream; charset=utf-8", body: everyByte, length: -1,
		},
		{
			name: "encoded", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.Header().Set("Content-Encoding", "gzip")
				w.Write(everyByte)
				flush(w)
			},
			status: 200, contentType: "text/event-stream", body: everyByte, length: -1,
		},
		{
			name: "empty", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
			},
			status: 200, contentType: "text/event-stream", body: nil, length: 0,
		},
		{
			name: "announced trailer", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				w.Header().Set("Content-Type", "text/plain")
				w.Write([]byte("short"))
				w.Header().Set("X-Sum", "1")
			},
			status: 200, contentType: "text/plain", body: []byte("short"), length: -1, trailer: http.Header{"X-Sum": {"1"}},
		},
		{
			name: "late trailer", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Write([]byte("short"))
				flush(w)
				w.Header().Set(http.TrailerPrefix+"X-Late", "2")
			},
			status: 200, contentType: "text/plain", body: []byte("short"), length: -1, trailer: http.Header{"X-Late": {"2"}},
		},
		{
			name: "early hints", answer: func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Link", "</a>; rel=preload")
				w.WriteHeader(http.StatusEarlyHints)
				w.WriteHeader(http.StatusEarlyHints)
				w.Header().Del("Link")
				answerAtOnce(w, r)
			},
			status: 200, contentType: "text/event-stream",
			body:   []byte("data: {\"choices\":[{\"delta\":{\"content\":\"Hello\"}}]}\n\ndata: [DONE]\n\n"),
			length: -2, early: 2,
		},
		{
			name: "HEAD", method: http.MethodHead, answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "12345")
			},
			status: 200, contentType: "application/json", length: 12345,
		},
		{
			name: "no content", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
			status: 204, length: 0,
		},
		{
			name: "not modified", method: http.MethodGet, answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Etag", `"v"`)
				w.WriteHeader(http.StatusNotModified)
			},
			status: 304, length: 0,
		},
		{
			name: "bad request", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json; odd=1")
				w.WriteHeader(http.StatusBadRequest)
				w.Write(badRequest)
			},
			status: 400, contentType: "application/json; odd=1", body: badRequest, length: int64(len(badRequest)),
		},
		{
			name: "error with a stream", answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				w.WriteHeader(http.StatusInternalServerError)
				io.WriteString(w, "data: {\"error\":1}\n\n")
				flush(w)
			},
			status: 500, contentType: "text/event-stream", body: []byte("data: {\"error\":1}\n\n"), length: -1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUpstream(t, test.answer)
			s := start(t, fmt.Sprintf(siteConfig, u.address(), "", ""))
			var early []http.Header
			ctx := httptrace.WithClientTrace(withPatience(t), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					if code == http.StatusEarlyHints {
						early = append(early, http.Header(h))
					}
					return nil
				},
			})
			method, body := test.method, strings.NewReader("")
			if method == "" {
				method, body = http.MethodPost, strings.NewReader(chat("hello"))
			}
			r, err := http.NewRequestWithContext(ctx, method, "http://"+s.sites[0]+chatPath, body)
			if err != nil {
				t.Fatal(err)
			}
			// nothing is to be decoded on the way
			r.Header.Set("Accept-Encoding", "identity")
			res, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != test.status {
				t.Errorf("status = %d, want %d", res.StatusCode, test.status)
			}
			if got := res.Header.Get("Content-Type"); got != test.contentType && (got != "" || !test.orNone) {
				t.Errorf("Content-Type = %q, want %q", got, test.contentType)
			}
			if !bytes.Equal(got, test.body) {
				t.Errorf("body has %d bytes, want the %d that were sent", len(got), len(test.body))
			}
			if test.length > -2 && res.ContentLength != test.length {
				t.Errorf("Content-Length = %d, want %d", res.ContentLength, test.length)
			}
			if len(res.Trailer)+len(test.trailer) > 0 && !maps.EqualFunc(res.Trailer, test.trailer, slices.Equal[[]string]) {
				t.Errorf("trailer = %v, want %v", res.Trailer, test.trailer)
			}
			if len(early) != test.early {
				t.Errorf("%d informational responses, want %d", len(early), test.early)
			}
			for _, h := range early {
				if h.Get("Link") != "</a>; rel=preload" {
					t.Errorf("informational header = %v", h)
				}
			}
			s.settled()
		})
	}
}

// A proxy held streams back until it had 16 KB: the first word came 16 seconds
// late.
//
// The upstream sends a chunk only after the client has said that it has the one
// before, so any byte held back anywhere ends in a standstill.
func TestCaseC32StreamsInLockStep(t *testing.T) {
	const chunks, size = 40, 250
	for _, contentType := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/json", "application/octet-stream"} {
		for _, encoded := range []bool{false, true} {
			// Caddy's encode waits for enough bytes of anything but events
			if encoded && !strings.HasPrefix(contentType, "text/event-stream") {
				continue
			}
			t.Run(fmt.Sprintf("%s, encoded %v", contentType, encoded), func(t *testing.T) {
				acks := make(chan struct{})
				chunk := func(i int) string {
					if i == 0 {
						return ": nothing yet" + strings.Repeat(".", size-15) + "\n\n"
					}
					return fmt.Sprintf("data: %-242s\n\n", fmt.Sprintf(`{"i":%d}`, i))
				}
				u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", contentType)
					for i := range chunks {
						io.WriteString(w, chunk(i))
						flush(w)
						if !reached(r, acks) {
							return
						}
					}
				})
				handler := ""
				if encoded {
					handler = "\n\tencode gzip"
				}
				s := start(t, fmt.Sprintf(siteConfig, u.address(), handler, ""))
				r, err := http.NewRequestWithContext(withPatience(t), http.MethodPost, "http://"+s.sites[0]+chatPath, strings.NewReader(chat("hello")))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Accept-Encoding", "gzip")
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				body := io.Reader(res.Body)
				if got := res.Header.Get("Content-Encoding") == "gzip"; got != encoded {
					t.Fatalf("Content-Encoding = %q, want encoded %v", res.Header.Get("Content-Encoding"), encoded)
				}
				if encoded {
					if body, err = gzip.NewReader(res.Body); err != nil {
						t.Fatal(err)
					}
				}
				buf := make([]byte, size)
				for i := range chunks {
					if _, err := io.ReadFull(body, buf); err != nil {
						t.Fatalf("chunk %d did not come: %v", i, err)
					}
					if string(buf) != chunk(i) {
						t.Fatalf("chunk %d = %q, want %q", i, buf, chunk(i))
					}
					// the first chunk of an event stream is a comment
					if i == 0 && strings.HasPrefix(contentType, "text/event-stream") {
						if got := s.fleet().of(u).RequestsWaiting; got != 1 {
							t.Errorf("waiting after a comment = %d, want 1", got)
						}
					} else if got := s.fleet().of(u).RequestsWaiting; got != 0 {
						t.Fatalf("waiting after chunk %d = %d, want 0", i, got)
					}
					select {
					case acks <- struct{}{}:
					case <-r.Context().Done():
						t.Fatalf("the upstream is gone after chunk %d", i)
					}
				}
				if _, err := body.Read(buf); !errors.Is(err, io.EOF) {
					t.Errorf("after the last chunk: %v, want EOF", err)
				}
				s.settled()
			})
		}
	}
}
