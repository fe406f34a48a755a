// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// upstreamCount is how many upstreams there are.
const upstreamCount = 4

// answerHeader tells an upstream how to answer: one of the answers below or, as
// a number, an event stream of so many bytes. Without it the answer is a small
// piece of JSON.
const answerHeader = "X-Answer"

const (
	answerStream = "stream" // a first event, then more after streamPause
	answerHold   = "hold"   // a first event, then nothing until the client leaves
)

// streamPause is between the first event and the second. Whatever holds the
// first one back until the second delays it by that.
const streamPause = 5 * time.Millisecond

// upstreams are servers that read a request and answer it at once.
type upstreams struct {
	servers   []*http.Server
	addresses []string
}

func startUpstreams() (*upstreams, error) {
	u := new(upstreams)
	for range upstreamCount {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			u.stop()
			return nil, fmt.Errorf("starting upstream: %w", err)
		}
		server := &http.Server{Handler: http.HandlerFunc(answer)}
		u.servers = append(u.servers, server)
		u.addresses = append(u.addresses, ln.Addr().String())
		go func() { _ = server.Serve(ln) }() // returns when it is closed
	}
	return u, nil
}

func (u *upstreams) stop() {
	for _, server := range u.servers {
		server.Close()
	}
}

var (
	jsonAnswer = []byte(`{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,` +
		`"message":{"role":"assistant","content":"Done."},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":250,"completion_tokens":2,"total_tokens":252}}`)
	event = []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m",` +
		`"choices":[{"index":0,"delta":{"content":"Done."},"finish_reason":null}]}` + "\n\n")
	lastEvent = []byte("data: [DONE]\n\n")
)

func answer(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	how := r.Header.Get(answerHeader)
	if how == "" {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(jsonAnswer)))
		w.Write(jsonAnswer)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	switch how {
	case answerStream, answerHold:
		w.Write(event)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		if how == answerHold {
			<-r.Context().Done()
			return
		}
		time.Sleep(streamPause)
	default:
		size, _ := strconv.Atoi(how)
		events := bytes.Repeat(event, 32<<10/len(event))
		for sent := 0; sent < size; sent += len(events) {
			if _, err := w.Write(events); err != nil {
				return
			}
		}
	}
	w.Write(lastEvent)
}
