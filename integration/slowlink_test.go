// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// slowLink takes connections and passes on to an address what comes, as late as it
// is told.
type slowLink struct {
	addr  string
	to    string
	delay atomic.Int64 // in nanoseconds
	held  atomic.Bool  // nothing gets through
	open  sync.WaitGroup
	end   chan struct{}
}

// newSlowLink passes on to an address until the end of the test.
func newSlowLink(t testing.TB, to string) *slowLink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLink{addr: ln.Addr().String(), to: to, end: make(chan struct{})}
	l.open.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			l.open.Go(func() { l.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		close(l.end)
		l.open.Wait()
	})
	return l
}

func (l *slowLink) serve(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", l.to)
	if err != nil {
		return
	}
	defer far.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			l.pass(way[0], way[1])
			// neither goes on without the other
			near.Close()
			far.Close()
		})
	}
	ended := make(chan struct{})
	go func() { both.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-l.end:
		near.Close()
		far.Close()
		<-ended
	}
}

// pass copies what comes from one side to the other.
func (l *slowLink) pass(from io.Reader, to io.Writer) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range parts {
			for time.Now().Before(p.due) || l.held.Load() {
				select {
				case <-l.end:
					return
				case <-time.After(max(time.Until(p.due), 5*time.Millisecond)):
				}
			}
			if _, err := to.Write(p.bytes); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p := part{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(l.delay.Load()))}
			select {
			case parts <- p:
			case <-l.end:
			}
		}
		if err != nil {
			break
		}
	}
	close(parts)
	writer.Wait()
}
