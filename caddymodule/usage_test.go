// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/prompts"
)

// pattern is n bytes, each different from its neighbours.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*7 + i>>8)
	}
	return p
}

func TestTail(t *testing.T) {
	lengths := []int{0, 1, tailBytes - 1, tailBytes, tailBytes + 1, 2*tailBytes - 1, 2 * tailBytes, 2*tailBytes + 1, 7 * tailBytes}
	sizes := []int{1, 7, 100, tailBytes - 1, tailBytes, tailBytes + 1, 3 * tailBytes, 0}
	for _, length := range lengths {
		for _, size := range sizes {
			text := pattern(length)
			var end tail
			for rest := text; len(rest) > 0; {
				n := size
				if size == 0 {
					n = rand.IntN(2 * tailBytes)
				}
				n = min(n, len(rest))
				end.write(rest[:n])
				rest = rest[n:]
			}
			if want := text[max(length-tailBytes, 0):]; !bytes.Equal(end.bytes(), want) {
				t.Errorf("%d bytes in writes of %d: kept %d bytes, want the last %d", length, size, len(end.bytes()), len(want))
			}
		}
	}
}

// told is the attempt of a placed request whose prompt was read.
func told() *attempt {
	return &attempt{prefills: true, prompt: prompts.Prompt{Parsed: true}, current: new(placed)}
}

// plainWriter is a recorder without ReadFrom.
type plainWriter struct{ http.ResponseWriter }

// The usage is found wherever the response is cut, and the client gets what was
// written.
func TestTailOfResponse(t *testing.T) {
	before := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", tailBytes) + "\"}}]}\n\n"
	text := before + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1234,\"prompt_tokens_details\":{\"cached_tokens\":77}}}\n\ndata: [DONE]\n\n"
	want := engines.Usage{PromptTokens: 1234, CachedTokens: engines.Known(77)}
	check := func(cut string, w *responseWriter, recorder *httptest.ResponseRecorder) {
		if w.tail == nil {
			t.Fatalf("%s: nothing was kept", cut)
		}
		if got, ok := engines.ReadUsage(w.tail.bytes()); !ok || got != want {
			t.Errorf("%s: usage = %+v, %v, want %+v", cut, got, ok, want)
		}
		if got := recorder.Body.String(); got != text {
			t.Errorf("%s: the client got %d other bytes, want %d", cut, len(got), len(text))
		}
	}
	for cut := len(before) - 3; cut <= len(text); cut++ {
		recorder := httptest.NewRecorder()
		w := newResponseWriter(recorder, told(), t.Context())
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, text[:cut])
		io.WriteString(w, text[cut:])
		check(fmt.Sprint("cut at ", cut), w, recorder)

		recorder = httptest.NewRecorder()
		w = newResponseWriter(plainWriter{recorder}, told(), t.Context())
		w.Header().Set("Content-Type", "text/event-stream")
		body := &piecewise{text: []byte(text), sizes: []byte{byte(1 + cut%200), 1}, err: io.EOF, together: cut%2 == 0}
		if n, err := w.ReadFrom(body); n != int64(len(text)) || err != nil {
			t.Errorf("ReadFrom = %d, %v, want %d", n, err, len(text))
		}
		check(fmt.Sprint("copied, ", cut), w, recorder)
	}
}

func TestTailIsNotKept(t *testing.T) {
	for _, test := range []struct {
		name     string
		status   int
		encoding string
		change   func(*attempt)
	}{
		{"compressed", 200, "gzip", nil},
		{"an error", 500, "", nil},
		{"a redirection", 302, "", nil},
		{"not parsed", 200, "", func(a *attempt) { a.prompt.Parsed = false }},
		{"no prompt", 200, "", func(a *attempt) { a.prefills = false }},
		{"not placed", 200, "", func(a *attempt) { a.current = nil }},
	} {
		a := told()
		if test.change != nil {
			test.change(a)
		}
		w := newResponseWriter(httptest.NewRecorder(), a, t.Context())
		w.Header().Set("Content-Encoding", test.encoding)
		w.WriteHeader(test.status)
		io.WriteString(w, "hello")
		if w.tail != nil {
			t.Errorf("%s: kept %q", test.name, w.tail.bytes())
		}
	}
	w := newResponseWriter(httptest.NewRecorder(), told(), t.Context())
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(nil)
	if w.tail != nil {
		t.Error("memory was taken before the first byte")
	}
}

func TestTailAllocatesOnce(t *testing.T) {
	w := newResponseWriter(plainWriter{discard{}}, told(), t.Context())
	chunk := pattern(100)
	write := func() { _, _ = w.Write(chunk) }
	write()
	if n := testing.AllocsPerRun(1000, write); n != 0 {
		t.Errorf("allocations in a write = %v, want 0", n)
	}
}

// discard is a response that goes nowhere.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) WriteHeader(int)             {}
func (discard) Write(p []byte) (int, error) { return len(p), nil }
