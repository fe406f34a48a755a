// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"context"
	"net/http"
	"time"
)

const (
	// viewerPatience is how long one event may take to be written: whoever does
	// not read for so long is taken for gone. No longer does such a viewer hold up
	// the end of a server.
	viewerPatience = 5 * time.Second

	// eventsPreface tells the page how soon to connect again after an end, in
	// milliseconds.
	eventsPreface = "retry: 1000\n\n"
)

// serveEvents sends an event for each interval until the viewer leaves or the
// configuration ends. Each viewer has but a goroutine of its own, which takes the
// newest event when it is ready for one: a slow one misses some, and nobody waits
// for it.
func (h *StatusHandler) serveEvents(w http.ResponseWriter, r *http.Request) error {
	defer h.viewers.Add(-1)
	if h.viewers.Add(1) > int64(h.MaxViewers) {
		return refuseViewer(w)
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	// proxies in front that would hold the events back
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	s := eventStream{w: w, control: http.NewResponseController(w), life: h.life}
	if !s.send([]byte(eventsPreface)) {
		return nil
	}
	for {
		event, wait := h.hub.event(time.Now())
		if !s.send(event) {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
			continue
		case <-r.Context().Done():
		case <-h.life.Done():
		}
		timer.Stop()
		// the server has yet to write the end of the response
		s.limit()
		return nil
	}
}

// refuseViewer answers that there are too many.
func refuseViewer(w http.ResponseWriter) error {
	header := w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	header.Set("Retry-After", "10")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, err := w.Write([]byte("the status page has as many viewers as it may have\n"))
	return err
}

// eventStream is what one viewer reads.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	life    context.Context
}

// limit gives what is written from now on, as far as there are deadlines, the time
// that one event may take. Only the stream's goroutine may set a deadline: Caddy's
// writer keeps it without a lock.
func (s *eventStream) limit() {
	// where there are no deadlines, a viewer may hold up its own stream for long
	_ = s.control.SetWriteDeadline(time.Now().Add(viewerPatience))
}

// send writes an event, and reports false where nothing more can be sent.
func (s *eventStream) send(event []byte) bool {
	s.limit()
	if s.life.Err() != nil {
		return false
	}
	if _, err := s.w.Write(event); err != nil {
		return false
	}
	if err := s.control.Flush(); err != nil {
		return false
	}
	// in HTTP/2 a deadline that passes breaks the stream even while nothing is
	// being written
	_ = s.control.SetWriteDeadline(time.Time{})
	return true
}
