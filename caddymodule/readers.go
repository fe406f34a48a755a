// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"io"
	"sync/atomic"
)

// reader yields bytes and lets go of them when they were read: whoever sent them
// may keep the reader for as long as the response streams.
type reader struct{ rest []byte }

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	if r.rest = r.rest[n:]; len(r.rest) == 0 {
		r.rest = nil
	}
	return n, nil
}

// Close does nothing. It may come while the bytes are read.
func (*reader) Close() error { return nil }

// standIn takes the place of a client's body: first what was read of it, then
// the rest. It takes hold of the bytes when it is first read, and lets go of them
// when they were read, so that a long stream does not keep a long prompt in
// memory.
type standIn struct {
	body     *body
	begun    bool
	first    []byte
	rest     io.Reader
	original io.Closer
}

// Read implements io.Reader.
func (s *standIn) Read(p []byte) (int, error) {
	if !s.begun {
		s.begun, s.first = true, s.body.begin()
	}
	if len(s.first) > 0 {
		n := copy(p, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	s.first = nil
	n, err := s.rest.Read(p)
	if err != nil && err != io.EOF {
		s.body.failed.Store(true)
	}
	return n, err
}

// Close closes the client's body.
func (s *standIn) Close() error { return s.original.Close() }

// unread is a body that a transport may ask for again. As long as nobody has read
// from it, which is when a connection was found dead before anything was sent,
// it is what it was, whoever has put it there.
type unread struct {
	io.ReadCloser
	begun atomic.Bool
}

// Read implements io.Reader.
func (u *unread) Read(p []byte) (int, error) {
	u.begun.Store(true)
	return u.ReadCloser.Read(p)
}

// again returns the same body anew: b's bytes if they were what was read.
func (u *unread) again(b *body) (io.ReadCloser, error) {
	if !u.begun.Load() {
		return u, nil
	}
	return b.get()
}

// failing is a reader that has failed.
type failing struct{ err error }

// Read returns the error.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
