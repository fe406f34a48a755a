// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// holdsNothing fails if bytes of request bodies are still counted.
func holdsNothing(t testing.TB) {
	t.Helper()
	if n := buffered.Load(); n != 0 {
		t.Errorf("%d bytes are still counted as held, want 0", n)
	}
}

// piecewise reads a text in pieces of the given sizes, over and over, and ends
// with an error that may come together with the last piece.
type piecewise struct {
	text     []byte
	sizes    []byte
	at       int
	err      error
	together bool
	closed   bool
}

func (p *piecewise) Read(to []byte) (int, error) {
	size := len(to)
	if len(p.sizes) > 0 {
		size = min(size, int(p.sizes[p.at%len(p.sizes)]))
		p.at++
	}
	n := copy(to[:size], p.text)
	p.text = p.text[n:]
	if len(p.text) == 0 && (n == 0 || p.together) {
		return n, p.err
	}
	return n, nil
}

func (p *piecewise) Close() error {
	p.closed = true
	return nil
}

func TestReadBody(t *testing.T) {
	errBroken := errors.New("broken")
	text := strings.Repeat("0123456789", 200_000)
	for _, test := range []struct {
		name                 string
		text                 string
		length               int64
		maxBody, maxBuffered int64
		err                  error
		whole                bool
		held                 int // the part that is held, -1 for any
	}{
		{"empty", "", -1, 100, 1000, io.EOF, true, 0},
		{"known length", text[:1000], 1000, 5000, 5000, io.EOF, true, 1000},
		{"unknown length", text[:100_000], -1, 1 << 20, 1 << 20, io.EOF, true, 100_000},
		{"long", text, int64(len(text)), 1 << 22, 1 << 30, io.EOF, true, len(text)},
		{"announced shorter than it is", text[:3000], 10, 5000, 9000, io.EOF, true, 3000},
		{"announced longer than it is", text[:10], math.MaxInt64, 5000, 1 << 20, io.EOF, true, 10},
		{"exactly max_body", text[:1000], 1000, 1000, 5000, io.EOF, true, 1000},
		{"two bytes over max_body", text[:1002], 1002, 1000, 5000, io.EOF, false, 1001},
		{"max_body of 1", text[:3], 3, 1, 5000, io.EOF, false, 2},
		{"1 byte with max_body of 1", text[:1], 1, 1, 5000, io.EOF, true, 1},
		{"far over max_body", text, -1, 700_000, 1 << 30, io.EOF, false, 700_001},
		{"largest max_body", text[:1000], -1, math.MaxInt64 - 1, math.MaxInt64, io.EOF, true, 1000},
		{"no room at all", text[:1000], 1000, 5000, 1, io.EOF, false, 0},
		{"no room to grow", text, -1, 1 << 22, 10_000, io.EOF, false, -1},
		{"fails at once", "", 100, 5000, 5000, errBroken, false, 0},
		{"fails in the middle", text[:700], 1000, 5000, 5000, errBroken, false, 700},
		{"fails after max_body", text[:700], 1000, 300, 5000, errBroken, false, 301},
		{"ends too early", text[:700], 1000, 5000, 5000, io.ErrUnexpectedEOF, false, 700},
		{"an error that wraps EOF", text[:700], 1000, 5000, 5000, fmt.Errorf("reading stream: %w", io.EOF), false, 700},
	} {
		for _, together := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, error with the last byte %v", test.name, together), func(t *testing.T) {
				original := &piecewise{text: []byte(test.text), err: test.err, together: together}
				r := &http.Request{Body: original, ContentLength: test.length}
				b, whole := readBody(r, test.maxBody, test.maxBuffered)
				if whole != test.whole {
					t.Errorf("whole = %v, want %v", whole, test.whole)
				}
				if got := len(b.bytes()); test.held >= 0 && got != test.held {
					t.Errorf("held %d bytes, want %d", got, test.held)
				}
				if n := buffered.Load(); n > test.maxBuffered || n < int64(len(b.bytes())) {
					t.Errorf("%d bytes are counted, want at least %d and at most %d", n, len(b.bytes()), test.maxBuffered)
				}
				got, err := io.ReadAll(r.Body)
				if string(got) != test.text {
					t.Errorf("read %d other bytes, want the %d that were sent", len(got), len(test.text))
				}
				if want := test.err; !errors.Is(err, want) && (!errors.Is(want, io.EOF) || err != nil) {
					t.Errorf("read error %v, want %v", err, want)
				}
				_ = r.Body.Close()
				if !original.closed {
					t.Error("the original body was not closed")
				}
				b.drop()
				b.drop()
				holdsNothing(t)
			})
		}
	}
}

// A body is sent again only where it was what was sent before: a handler behind
// this module's may have put another one in its place.
func TestSentAgain(t *testing.T) {
	const text = "the very same bytes"
	sent := func(t *testing.T) (*body, *http.Request) {
		t.Helper()
		r := &http.Request{Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text))}
		b, whole := readBody(r, 100, 10_000)
		if !whole {
			t.Fatal("body was not read whole")
		}
		t.Cleanup(b.drop)
		return b, r
	}
	t.Run("not read before", func(t *testing.T) {
		b, _ := sent(t)
		if _, err := b.get(); !errors.Is(err, errNoBody) {
			t.Errorf("get: %v, want %v", err, errNoBody)
		}
	})
	t.Run("read before", func(t *testing.T) {
		b, r := sent(t)
		if _, err := r.Body.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			again, err := b.get()
			if err != nil {
				t.Fatal(err)
			}
			if err := iotest.TestReader(again, []byte(text)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("dropped meanwhile", func(t *testing.T) {
		b, r := sent(t)
		if _, err := r.Body.Read(make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		again, err := b.get()
		if err != nil {
			t.Fatal(err)
		}
		b.drop()
		// an engine that answers early still gets all of it
		for _, reader := range []io.Reader{again, io.MultiReader(strings.NewReader(text[:3]), r.Body)} {
			if got, err := io.ReadAll(reader); string(got) != text || err != nil {
				t.Errorf("read %q, %v, want all of it", got, err)
			}
		}
		if _, err := b.get(); !errors.Is(err, errNoBody) {
			t.Errorf("get: %v, want %v", err, errNoBody)
		}
	})
	t.Run("for an error route", func(t *testing.T) {
		b, r := sent(t)
		if _, err := io.ReadAll(r.Body); err != nil {
			t.Fatal(err)
		}
		r.Body = b.rewound(r.Body)
		if got, err := io.ReadAll(r.Body); string(got) != text || err != nil {
			t.Errorf("read %q, %v, want all of it", got, err)
		}
	})
}

// A transport asks for the body again when its connection was dead before
// anything was sent, and when it died later.
func TestTransportAsksAgain(t *testing.T) {
	const text, other = "the very same bytes", "put in its place"
	begin := func(t *testing.T, inner func(*http.Request)) *http.Request {
		t.Helper()
		a := &attempt{count: 1, policy: new(LoadAwareSelection)}
		r := &http.Request{
			Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
		}
		a.body, a.whole = readBody(r, 100, 10_000)
		a.request, a.standIn = r, r.Body
		t.Cleanup(a.body.drop)
		inner(r)
		a.renewBody(r)
		return r
	}
	replaced := func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(other)) }
	for _, test := range []struct {
		name  string
		inner func(*http.Request)
		read  int
		want  string // what the second connection gets, "" for nothing
	}{
		{"nothing sent", func(*http.Request) {}, 0, text},
		{"some sent", func(*http.Request) {}, 3, text},
		{"all sent", func(*http.Request) {}, len(text), text},
		{"another body, nothing sent", replaced, 0, other},
		{"another body, some sent", replaced, 3, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := begin(t, test.inner)
			if _, err := io.ReadFull(r.Body, make([]byte, test.read)); err != nil {
				t.Fatal(err)
			}
			again, err := r.GetBody()
			if test.want == "" {
				if !errors.Is(err, errNoBody) {
					t.Fatalf("GetBody: %v, want %v", err, errNoBody)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(again); string(got) != test.want || err != nil {
				t.Errorf("read %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// A client that breaks its body off is noted, whether the body was read here or
// passes through.
func TestBrokenBodyIsNoted(t *testing.T) {
	for name, take := range map[string]func(*http.Request) *body{
		"read":            func(r *http.Request) *body { b, _ := readBody(r, 100, 10_000); return b },
		"read in part":    func(r *http.Request) *body { b, _ := readBody(r, 3, 10_000); return b },
		"passing through": watchBody,
	} {
		r := &http.Request{Body: io.NopCloser(io.MultiReader(
			strings.NewReader("begun"), iotest.ErrReader(io.ErrUnexpectedEOF))), ContentLength: -1}
		b := take(r)
		if _, err := io.ReadAll(r.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: read error %v, want %v", name, err, io.ErrUnexpectedEOF)
		}
		if !b.failed.Load() {
			t.Errorf("%s: the failure was not noted", name)
		}
		b.drop()
	}
	holdsNothing(t)
}

// discarding is a response writer for nobody.
type discarding struct{ header http.Header }

func (d discarding) Header() http.Header         { return d.header }
func (d discarding) Write(p []byte) (int, error) { return len(p), nil }
func (d discarding) WriteHeader(int)             {}

// However requests end, and however many there are at a time, nothing of them
// is held when they are over.
func TestNothingIsHeldAfterRequests(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("hello ", 20_000) + `"}]}`
	for _, test := range []struct {
		name string
		next caddyhttp.HandlerFunc
		cut  bool // the client breaks off
	}{
		{"no answer", func(http.ResponseWriter, *http.Request) error { return nil }, false},
		{"body read", func(_ http.ResponseWriter, r *http.Request) error {
			got, err := io.ReadAll(r.Body)
			if string(got) != body {
				return fmt.Errorf("read %d other bytes", len(got))
			}
			return err
		}, false},
		{"answer", func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, "hello")
			return err
		}, false},
		{"error status", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusBadGateway)
			return nil
		}, false},
		{"error", func(http.ResponseWriter, *http.Request) error {
			return caddyhttp.Error(http.StatusBadGateway, errors.New("refused"))
		}, false},
		{"error after the answer", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusOK)
			return errors.New("late")
		}, false},
		{"panic", func(http.ResponseWriter, *http.Request) error { panic(http.ErrAbortHandler) }, false},
		{"panic after the answer", func(w http.ResponseWriter, _ *http.Request) error {
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		}, false},
		{"client breaks off", func(http.ResponseWriter, *http.Request) error { return errors.New("broken") }, true},
	} {
		for _, limits := range []Handler{
			{MaxBody: 1 << 20, MaxBuffered: 1 << 30},
			{MaxBody: 64 << 10, MaxBuffered: 128 << 10},
			{MaxBody: 1 << 20, MaxBuffered: 1},
		} {
			t.Run(fmt.Sprintf("%s, max_body %d, max_buffered %d", test.name, limits.MaxBody, limits.MaxBuffered), func(t *testing.T) {
				h := &Handler{MaxBody: limits.MaxBody, MaxBuffered: limits.MaxBuffered, MaxPromptTokens: 1000, MediaTokens: 1000, logger: zap.NewNop()}
				var wg sync.WaitGroup
				for range 20 {
					wg.Go(func() {
						// Caddy's server ends the context when the request is over
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						ctx = context.WithValue(ctx, caddyhttp.VarsCtxKey, map[string]any{})
						var from io.Reader = strings.NewReader(body)
						if test.cut {
							from = io.MultiReader(strings.NewReader(body[:1000]), iotest.ErrReader(io.ErrUnexpectedEOF))
						}
						r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://a/v1/chat/completions", from)
						if err != nil {
							t.Error(err)
							return
						}
						defer func() {
							if p := recover(); p != nil && p != any(http.ErrAbortHandler) {
								t.Errorf("panic: %v", p)
							}
						}()
						_ = h.ServeHTTP(discarding{http.Header{}}, r, test.next)
					})
				}
				wg.Wait()
				// functions that run after a context's end have goroutines of
				// their own; the last of them has to come
				deadline := time.NewTimer(10 * time.Second)
				defer deadline.Stop()
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for late := false; buffered.Load() != 0 && !late; {
					select {
					case <-tick.C:
					case <-deadline.C:
						late = true
					}
				}
				holdsNothing(t)
			})
		}
	}
}

func FuzzReadBody(f *testing.F) {
	f.Add([]byte("hello"), []byte{2, 0, 1}, int64(5), int64(3), int64(1000), false, true)
	f.Add(bytes.Repeat([]byte("long "), 300), []byte{255}, int64(-1), int64(1200), int64(2000), true, false)
	f.Add([]byte{}, []byte{}, int64(0), int64(1), int64(1), false, false)
	f.Fuzz(func(t *testing.T, text, sizes []byte, length, maxBody, maxBuffered int64, fails, together bool) {
		maxBody, maxBuffered = max(maxBody, 1), max(maxBuffered, 1)
		if maxBody == math.MaxInt64 {
			maxBody-- // no config can say so much: Caddy decodes numbers as floats
		}
		if len(sizes) > 0 && bytes.Count(sizes, []byte{0}) == len(sizes) {
			sizes = nil // a reader that never gives anything
		}
		end := io.EOF
		if fails {
			end = io.ErrUnexpectedEOF
		}
		r := &http.Request{
			Body:          &piecewise{text: bytes.Clone(text), sizes: sizes, err: end, together: together},
			ContentLength: length,
		}
		b, whole := readBody(r, maxBody, maxBuffered)
		if n := buffered.Load(); n > maxBuffered || n < int64(len(b.bytes())) {
			t.Errorf("%d bytes are counted, want %d to %d", n, len(b.bytes()), maxBuffered)
		}
		if !bytes.HasPrefix(text, b.bytes()) {
			t.Error("what is held is not the beginning of what was sent")
		}
		if whole && fails {
			t.Error("a body that broke off is whole")
		}
		// one byte more is what it takes to see that a body goes on
		if n := int64(len(b.bytes())); n > maxBody+1 {
			t.Errorf("%d bytes are held, want at most %d", n, maxBody+1)
		}
		got, err := io.ReadAll(r.Body)
		if !bytes.Equal(got, text) {
			t.Errorf("read %d other bytes, want the %d that were sent", len(got), len(text))
		}
		if fails && !errors.Is(err, end) || !fails && err != nil {
			t.Errorf("read error %v, want %v", err, end)
		}
		for range 2 {
			if !whole {
				break
			}
			again, err := b.get()
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(again); err != nil || !bytes.Equal(got, text) {
				t.Errorf("read again %d other bytes, %v", len(got), err)
			}
		}
		b.drop()
		holdsNothing(t)
	})
}

func FuzzUnmarshalCaddyfile(f *testing.F) {
	for _, text := range []string{
		"llm_loadaware",
		"llm_loadaware {\n}",
		"llm_loadaware {\n\tmax_body 1MiB\n\tmax_buffered 2GB\n\tmax_prompt_tokens 1000\n\tmedia_tokens 500\n}",
		"llm_loadaware {\n\tfleet blue\n\tsession_header X-One X-Two\n\tsession_ttl 2d\n\tmax_sessions 10\n\tstickiness 0\n" +
			"\trequest_cost 100.5\n\tcongestion 0\n\teviction 1e3\n\tprefix_index off\n\tprefill_rate off\n\tkv_tokens 100000\n\tprefill_ttl 1m30s\n}",
		"llm_loadaware extra",
		"llm_loadaware {\n\tmax_body {\n\t\tx\n\t}\n}",
		"llm_loadaware {\n\tsession_header A {\n\t}\n}",
		"llm_loadaware {\n\tstickiness inf\n}",
		"llm_loadaware {\n\teviction 0x1p-2\n\tcongestion nan\n}",
		"llm_loadaware {\n\tfleet \"\"\n\tfleet",
		"llm_loadaware {\n\tmax_body 9EiB\n}",
		"llm_loadaware {\n\tmax_body 4EiB\n\tkv_tokens 9223372036854775807\n}",
		"{ }",
		"",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := new(LoadAwareSelection)
		if err := p.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err == nil {
			again := new(LoadAwareSelection)
			adapted(t, p, again)
			again.setDefaults()
			if err := again.Validate(); err != nil {
				t.Errorf("adapts but does not validate: %v", err)
			}
		}
		h := new(Handler)
		if err := h.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); err == nil {
			again := new(Handler)
			adapted(t, h, again)
			if err := again.Provision(caddy.Context{Context: t.Context()}); err != nil {
				t.Fatal(err)
			}
			if err := again.Validate(); err != nil {
				t.Errorf("adapts but does not validate: %v", err)
			}
		}
	})
}

// adapted writes what was parsed as JSON and reads it back, as adapting does.
func adapted(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		t.Fatalf("adapting: %v", err)
	}
}
