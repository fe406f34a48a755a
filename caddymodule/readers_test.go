// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"testing"
	"weak"
)

// readLong reads a body of that many bytes.
func readLong(t *testing.T, size int) (*http.Request, *body) {
	t.Helper()
	text := bytes.Repeat([]byte("x"), size)
	r := &http.Request{Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(size)}
	b, whole := readBody(r, 1<<20, 1<<30)
	if !whole {
		t.Fatal("the body was not read whole")
	}
	return r, b
}

func readToEnd(t *testing.T, from io.Reader, size int) {
	t.Helper()
	if text, err := io.ReadAll(from); err != nil || len(text) != size {
		t.Fatalf("read %d bytes, %v, want %d", len(text), err, size)
	}
}

// While a long response streams, the request, its stand-in and the reader that
// was sent are all still referred to. The prompt must not be.
func TestOpenStreamKeepsNoPrompt(t *testing.T) {
	const size = 100_000
	for _, test := range []struct {
		name string
		sent func(r *http.Request, b *body) (io.ReadCloser, error)
	}{
		{"the stand-in is sent", func(r *http.Request, _ *body) (io.ReadCloser, error) { return r.Body, nil }},
		{"a fresh reader is sent", func(_ *http.Request, b *body) (io.ReadCloser, error) { return b.fresh() }},
	} {
		for _, dropFirst := range []bool{false, true} {
			r, b := readLong(t, size)
			held := weak.Make(&b.data[0])
			sent, err := test.sent(r, b)
			if err != nil {
				t.Fatal(err)
			}
			if dropFirst {
				b.drop()
			}
			readToEnd(t, sent, size)
			b.drop()
			runtime.GC()
			if held.Value() != nil {
				t.Errorf("%s, answered before %v: the prompt is still in memory", test.name, dropFirst)
			}
			runtime.KeepAlive(r)
			runtime.KeepAlive(b)
			runtime.KeepAlive(sent)
		}
	}
	holdsNothing(t)
}

// Where a proxy sends the stand-in itself, the upstream may answer before the
// first byte of it was read.
func TestStandInOutlivesTheDrop(t *testing.T) {
	r, b := readLong(t, 100_000)
	b.drop()
	if _, err := b.fresh(); err == nil {
		t.Error("fresh() succeeded after the drop")
	}
	readToEnd(t, r.Body, 100_000)
	holdsNothing(t)
}

// A client is believed what it announces once it has sent a part of it.
func TestNextSize(t *testing.T) {
	for _, test := range []struct{ size, announced, want int64 }{
		{100, 0, 200},
		{100, 50, 200},
		{100, 101, 101},
		{100, 800, 800},
		{100, 801, 200},
	} {
		if got := nextSize(test.size, test.announced); got != test.want {
			t.Errorf("nextSize(%d, %d) = %d, want %d", test.size, test.announced, got, test.want)
		}
	}
}
