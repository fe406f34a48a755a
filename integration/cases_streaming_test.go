// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// forsaken is an upstream that begins as begin does and then says nothing more,
// with what it has noticed.
type forsaken struct{ arrived, left chan struct{} }

func (f *forsaken) answer(begin func(w http.ResponseWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begin(w)
		close(f.arrived)
		<-r.Context().Done()
		close(f.left)
	}
}

func (f *forsaken) noticed(t *testing.T) {
	t.Helper()
	select {
	case <-f.left:
	case <-withPatience(t).Done():
		t.Fatal("the upstream has not noticed that the client is gone")
	}
}

func newForsaken() *forsaken { return &forsaken{make(chan struct{}), make(chan struct{})} }

// A relay that waits for the next piece of a silent upstream does not see that
// its client has gone, and keeps the slot and the upstream busy.
func TestCaseC25StalledStreamEndsWithClient(t *testing.T) {
	f := newForsaken()
	up := newUpstream(t, f.answer(func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {}\n\n")
		flush(w)
	}))
	s := start(t, fmt.Sprintf(oneSite, up.address()))
	res := begin(t, s.sites[0], chatPath, chat("hello"))
	if _, err := io.ReadFull(res.Body, make([]byte, len("data: {}\n\n"))); err != nil {
		t.Fatal(err)
	}
	if got := s.inFlight(); got != 1 {
		t.Errorf("in flight while it stalls = %d, want 1", got)
	}
	res.Body.Close()
	f.noticed(t)
	s.settled()
}

// The client of a request that is not streamed left, and the engine went on for
// nobody.
func TestCaseC29UnstreamedRequestEndsWithClient(t *testing.T) {
	f := newForsaken()
	up := newUpstream(t, f.answer(func(http.ResponseWriter) {}))
	s := start(t, fmt.Sprintf(oneSite, up.address()))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	done := make(chan error, 1)
	go func() {
		_, err := send(ctx, s.sites[0], chatPath, unstreamed(chat("hello"))) //nolint:bodyclose // there is none
		done <- err
	}()
	<-f.arrived
	if got := s.inFlight(); got != 1 {
		t.Errorf("in flight while the engine thinks = %d, want 1", got)
	}
	leave()
	if err := <-done; err == nil {
		t.Error("the client has an answer")
	}
	f.noticed(t)
	s.settled()
}
