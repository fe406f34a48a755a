// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-llm/loadaware/fleet"
)

// responseWriter watches a response for its status and its first output, finds
// the id of one that the engine keeps, and keeps the end of one that may tell its
// usage. It delays and changes nothing, and copies no more than that end.
//
// WriteHeader with an informational status and FlushError may be called from
// other goroutines, and touch nothing of it but the stream.
type responseWriter struct {
	caddyhttp.ResponseWriterWrapper
	attempt *attempt
	ctx     context.Context

	// status is the final status, 0 until it is written
	status int

	// watching says that the first output is still to come, and events that it
	// is an event to look for rather than a byte; broken that an error has come
	// in its place
	watching, events, broken bool
	scanner                  eventScanner

	// stream is the placement whose response it is, nil for one that begins
	// with an error
	stream atomic.Pointer[placed]

	// tailing says that the end of the body is kept, and tail is what there is
	// of it, nil before the first byte
	tailing bool
	tail    *tail

	// id looks for the id of the response, nil where that is not wanted or was
	// found
	id *idScanner

	// writeFailed says that the client could not be written to
	writeFailed bool
}

func newResponseWriter(w http.ResponseWriter, a *attempt, ctx context.Context) *responseWriter {
	return &responseWriter{
		ResponseWriterWrapper: caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		attempt:               a,
		ctx:                   ctx,
	}
}

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	final := status >= 200 || status == http.StatusSwitchingProtocols
	if final && w.status == 0 {
		w.begin(status)
	}
	w.ResponseWriterWrapper.WriteHeader(status)
}

// begin notes the final status. Caddy writes 499 for a client that has left,
// which is no answer of the upstream.
func (w *responseWriter) begin(status int) {
	w.status = status
	w.attempt.body.drop()
	// a handler in between may answer in place of an upstream that has failed
	if status < 400 {
		status = max(status, answered(w.ctx))
	}
	switch {
	case status >= 400 && w.ctx.Err() == nil:
		w.attempt.fail(w.ctx, fleet.CauseError, status)
		return
	case status >= 400:
		return
	}
	w.stream.Store(w.attempt.current)
	if status == http.StatusSwitchingProtocols {
		w.attempt.output()
		return
	}
	w.watching = true
	header := w.Header()
	if encoding := header.Get("Content-Encoding"); encoding == "" || strings.EqualFold(encoding, "identity") {
		mediaType, _, _ := strings.Cut(header.Get("Content-Type"), ";")
		w.events = strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream")
		w.tailing = w.attempt.tellsUsage(status)
		w.keepsResponse(status)
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.watching && len(p) > 0 {
		w.look(p)
	}
	if w.id != nil {
		w.readID(p)
	}
	stream := w.stream.Load()
	if !w.watching {
		// before, an engine that hangs sends as much
		stream.progress()
	}
	stream.blocked(true)
	n, err := w.ResponseWriterWrapper.Write(p)
	stream.blocked(false)
	if err != nil {
		w.writeFailed = true
	} else if w.tailing {
		w.keep(p)
	}
	return n, err
}

// look looks for the first output.
func (w *responseWriter) look(p []byte) {
	seen := sightOutput
	if w.events {
		seen = w.scanner.scan(p)
	}
	switch seen {
	case sightNothing:
	case sightOutput:
		w.watching = false
		w.attempt.output()
	case sightError:
		w.fail()
	}
}

// fail notes that an error has come in place of the response. Its status is
// written, but it has failed all the same.
func (w *responseWriter) fail() {
	w.watching, w.broken = false, true
	w.stream.Store(nil)
	w.attempt.fail(w.ctx, fleet.CauseError, w.scanner.fault.result())
}

// end notes that nothing more is to come.
func (w *responseWriter) end() {
	if w.watching && w.scanner.failing {
		w.fail()
	}
}

// ReadFrom implements io.ReaderFrom. It copies through Write what has to be
// looked at, and lets the underlying writer do the rest as it can best.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	var total int64
	var buf []byte
	for w.watching || w.tailing || w.id != nil {
		if buf == nil {
			buf = make([]byte, 4096)
		}
		n, err := r.Read(buf)
		if n > 0 {
			written, werr := w.Write(buf[:n])
			total += int64(written)
			if werr != nil {
				return total, werr
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return total, err
		}
	}
	n, err := w.ResponseWriterWrapper.ReadFrom(r)
	return total + n, err
}

// FlushError flushes what was written, see http.ResponseController.
func (w *responseWriter) FlushError() error {
	stream := w.stream.Load()
	stream.blocked(true)
	defer stream.blocked(false)
	return http.NewResponseController(w.ResponseWriterWrapper.ResponseWriter).Flush()
}

// Interface guards
var (
	_ http.ResponseWriter = (*responseWriter)(nil)
	_ io.ReaderFrom       = (*responseWriter)(nil)
)
