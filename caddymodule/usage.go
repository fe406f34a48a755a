// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net/http"
	"sync"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/fleet"
)

// tailBytes is how much of a response's end is kept, to find its usage in. In
// every API the usage comes last but for a few fields: with those and the end of
// the stream it is less than 1 KiB.
const tailBytes = 2 << 10

// tail keeps the last tailBytes of what is written to it. It holds twice as many,
// so that most writes are one short copy and nothing moves. Its zero value is
// empty.
type tail struct {
	kept [2 * tailBytes]byte
	n    int
}

// tails are those that no response uses.
var tails = sync.Pool{New: func() any { return new(tail) }}

// write takes the next bytes of the response. Of more than are kept it copies
// only the last.
func (t *tail) write(p []byte) {
	if len(p) >= tailBytes {
		t.n = copy(t.kept[:], p[len(p)-tailBytes:])
		return
	}
	if t.n+len(p) > len(t.kept) {
		t.n = copy(t.kept[:], t.bytes())
	}
	t.n += copy(t.kept[t.n:], p)
}

// bytes returns the last bytes that were written, good until the next write.
func (t *tail) bytes() []byte { return t.kept[max(t.n-tailBytes, 0):t.n] }

// release gives t back. It must not be used after that.
func (t *tail) release() {
	t.n = 0
	tails.Put(t)
}

// tellsUsage reports whether the usage in a response with a good status and a
// body in plain text is of use: whether its request was placed, and its prompt
// read, so that there is an estimate to correct.
func (a *attempt) tellsUsage(status int) bool {
	return status < http.StatusMultipleChoices && a.current != nil && a.prefills && a.prompt.Parsed
}

// keep keeps the end of the response. The memory is taken with its first byte: a
// request may wait long for that.
func (w *responseWriter) keep(p []byte) {
	if len(p) == 0 {
		return
	}
	if w.tail == nil {
		w.tail = tails.Get().(*tail)
	}
	w.tail.write(p)
}

// takeUsage gives what a response that has come to its end says of its prompt to
// the placement, and lets the end of the response go. One that broke off says
// nothing: what looks like usage in it may be a part of something else.
func (a *attempt) takeUsage(w *responseWriter, cause fleet.Cause) {
	t := w.tail
	if t == nil {
		return
	}
	w.tail, w.tailing = nil, false
	defer t.release()
	if cause != fleet.CauseEnd || a.current == nil {
		return
	}
	if usage, ok := engines.ReadUsage(t.bytes()); ok {
		a.current.Usage(usage, time.Now())
	}
}
