// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"net/http"
	"strings"
)

// events writes a stream of server-sent events. Each is flushed by itself, as vLLM's are.
type events struct {
	w     http.ResponseWriter
	flush func() error
	fault Fault
	sent  int
}

// openEvents sends the headers of a stream, long before there is anything to say.
func openEvents(w http.ResponseWriter, f Fault) *events {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	e := &events{w: w, flush: http.NewResponseController(w).Flush, fault: f}
	e.write(nil)
	return e
}

// send writes an event whose data is v. name may be empty.
func (e *events) send(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		data = []byte("null")
	}
	e.event(name, data)
}

// done writes the end mark of the OpenAI APIs.
func (e *events) done() { e.event("", []byte("[DONE]")) }

// failure writes the error that takes the place of a response whose headers are sent.
func (e *events) failure(r *http.Request, err *apiError) {
	if strings.HasPrefix(r.URL.Path, "/v1/messages") {
		e.send("error", err.body(r.URL.Path))
		return
	}
	e.send("", err.body(r.URL.Path))
	e.done()
}

func (e *events) event(name string, data []byte) {
	if e.fault.Request == FaultResetMidStream && e.sent == e.fault.AfterEvents {
		reset(e.w)
	}
	e.sent++
	var text []byte
	if name != "" {
		text = append(append(append(text, "event: "...), name...), '\n')
	}
	text = append(append(append(text, "data: "...), data...), "\n\n"...)
	e.write(text)
}

// write leaves errors alone: a client that has left is noticed by its context.
func (e *events) write(text []byte) {
	_, _ = e.w.Write(text)
	_ = e.flush()
}
