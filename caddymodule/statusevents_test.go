// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// caddyWriter is w as Caddy's server hands it on.
func caddyWriter(w http.ResponseWriter, r *http.Request) *caddyhttp.IdleTimeoutWriter {
	return &caddyhttp.IdleTimeoutWriter{
		ResponseWriterWrapper: &caddyhttp.ResponseWriterWrapper{ResponseWriter: w},
		Ctrl:                  http.NewResponseController(w),
		Deadline:              caddyhttp.IdleDeadline{Start: time.Now(), Timeout: time.Minute},
		Logger:                zap.NewNop(),
		ClearBetweenWrites:    r.ProtoMajor == 2,
	}
}

// held is a viewer's end that takes a flush only a second after the end of the
// configuration.
type held struct {
	watcher
	life    context.Context
	busy    atomic.Bool
	touched atomic.Bool
}

func (h *held) SetWriteDeadline(time.Time) error {
	if h.busy.Load() {
		h.touched.Store(true)
	}
	return nil
}

func (h *held) FlushError() error {
	h.busy.Store(true)
	<-h.life.Done()
	time.Sleep(time.Second)
	h.busy.Store(false)
	return nil
}

// Caddy's writer keeps a deadline without a lock: nobody sets one while the stream
// uses the writer.
func TestStatusDeadlineIsTheStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newStatusHandler(t)
		w := &held{watcher: watcher{header: http.Header{}}, life: h.life}
		time.AfterFunc(time.Second, h.end)
		watch(t.Context(), t, h, caddyWriter(w, new(http.Request)))
		if len(w.events) != 1 || w.touched.Load() {
			t.Errorf("%d writes, deadline set meanwhile: %t, want one write and nobody else at it", len(w.events), w.touched.Load())
		}
	})
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	net.Listener
	conns chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Addr() net.Addr { return new(net.TCPAddr) }
func (p *pipes) Close() error   { close(p.conns); return nil }

// Between two events nothing is written for longer than one may take, up to a
// minute, which is also how long Caddy lets a response stand still. In HTTP/2 a
// deadline is a timer that breaks the stream all the same.
func TestStatusOutlastsDeadlines(t *testing.T) {
	for _, interval := range []time.Duration{31 * time.Second, time.Minute} {
		for _, name := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+" "+interval.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := &StatusHandler{Fleet: t.Name(), Interval: caddy.Duration(interval)}
					h.begin()
					defer func() { _ = h.Cleanup() }()
					testOutlasts(t, h, name)
				})
			})
		}
	}
}

func testOutlasts(t *testing.T, h *StatusHandler, proto string) {
	var protocols http.Protocols
	protocols.SetHTTP1(proto == "HTTP/1.1")
	protocols.SetUnencryptedHTTP2(proto != "HTTP/1.1")
	listener := &pipes{conns: make(chan net.Conn)}
	server := &http.Server{Protocols: &protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writer := caddyWriter(w, r)
		defer writer.HandlerDone()
		_ = h.ServeHTTP(writer, r, nil)
	})}
	go func() { _ = server.Serve(listener) }()
	transport := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, served := net.Pipe()
		listener.conns <- served
		return client, nil
	}}
	defer func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://site/?events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Proto != proto {
		t.Fatalf("answered with %s", res.Proto)
	}
	events := 0
	for body := bufio.NewScanner(res.Body); events < 10; {
		if !body.Scan() {
			t.Fatalf("the stream ended after %d events: %v", events, body.Err())
		}
		if strings.HasPrefix(body.Text(), "data: ") {
			events++
		}
	}
	h.end()
	if _, err := bufio.NewReader(res.Body).WriteTo(new(strings.Builder)); err != nil {
		t.Errorf("the stream ended with %v, want a good end", err)
	}
}
