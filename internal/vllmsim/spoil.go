// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// spoil carries out a request fault that needs nothing of the request's content, and reports whether it did.
func (s *Server) spoil(w http.ResponseWriter, r *http.Request, f Fault) bool {
	if f.Request == FaultNone {
		return false
	}
	pause(r.Context(), f.DelayMillis)
	switch f.Request {
	case FaultStatus:
		status := f.Status
		if status == 0 {
			status = http.StatusServiceUnavailable
		}
		if f.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		writeError(w, r, &apiError{status: status, message: "The server is overloaded or not ready yet."})
	case FaultHangBeforeHeaders:
		hang(r.Context())
	case FaultResetBeforeHeaders:
		reset(w)
	default:
		return false
	}
	return true
}

// pause lets time pass, which is not divided by the server's speed. It ends early with the request's context.
func pause(ctx context.Context, millis int) {
	if millis <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hang waits until the client leaves or the server is restarted or closed, and cuts the connection.
func hang(ctx context.Context) {
	<-ctx.Done()
	panic(http.ErrAbortHandler)
}

// cutIfGone cuts the connection if the client has left or the process that would go on to answer has ended.
func cutIfGone(ctx context.Context) {
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

// reset closes the connection with a TCP reset where that is possible, and never returns.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		abort(conn)
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) getFault(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Fault())
}

// postFault sets the fault that the body describes; an empty object repairs the server.
func (s *Server) postFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	in := json.NewDecoder(r.Body)
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		writeError(w, r, badRequest("reading fault: "+err.Error()))
		return
	}
	if !f.valid() {
		writeError(w, r, badRequest("unknown kind of fault"))
		return
	}
	s.SetFault(f)
	writeJSON(w, http.StatusOK, f)
}

func (s *Server) postRestart(w http.ResponseWriter, _ *http.Request) {
	s.Restart()
	w.WriteHeader(http.StatusOK)
}
