// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// buffered is how many bytes of request bodies are held in memory, over all
// requests of all configurations.
var buffered atomic.Int64

// firstBuffer is the most that is allocated before any byte has arrived: a
// client may announce much more than it ever sends.
const firstBuffer = 64 << 10

// body is a request body read into memory. Its bytes never change, so any
// number of readers may be at work on them.
type body struct {
	mu   sync.Mutex
	data []byte
	held int64

	// begun says that somebody reads the body that stands in for the client's,
	// and failed that the client's could not be read to its end
	begun, failed atomic.Bool
}

// readBody reads the body of r up to maxBody bytes, as long as no more than
// maxBuffered bytes are held over all requests, and puts a replacement in its
// place that yields the very same bytes and the same error. whole reports that
// this was all of the body, so that it can be sent again.
func readBody(r *http.Request, maxBody, maxBuffered int64) (b *body, whole bool) {
	b = new(body)
	original := r.Body
	err := b.fill(original, r.ContentLength, maxBody, maxBuffered)
	var rest io.Reader = original
	switch {
	case err == io.EOF: //nolint:errorlint // an error that wraps it is a failure to pass on
		rest, whole = http.NoBody, true
	case err != nil:
		b.failed.Store(true)
		rest = failing{err}
	}
	r.Body = &standIn{body: b, first: b.data, rest: rest, original: original}
	return b, whole
}

// watchBody notes in b whether the client's body can be read to its end.
func watchBody(r *http.Request) *body {
	b := new(body)
	r.Body = &standIn{body: b, rest: r.Body, original: r.Body}
	return b
}

// fill reads until an error, which it returns: io.EOF where the body has ended.
// It returns nil where a limit was reached first.
func (b *body) fill(from io.Reader, length, maxBody, maxBuffered int64) error {
	// one byte more than is announced, so that the end is seen without growing
	size := min(max(length+1, bytes.MinRead), firstBuffer)
	for {
		if len(b.data) == cap(b.data) {
			if !b.grow(size, maxBuffered) {
				return nil
			}
			size = min(2*size, maxBody+1)
		}
		n, err := from.Read(b.data[len(b.data):min(int64(cap(b.data)), maxBody+1)])
		b.data = b.data[:len(b.data)+n]
		if int64(len(b.data)) > maxBody && (err == nil || err == io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grow makes room for size bytes in all, and reports false where that would
// hold too much over all requests.
func (b *body) grow(size, maxBuffered int64) bool {
	more := size - int64(cap(b.data))
	if more <= 0 {
		return false
	}
	if buffered.Add(more) > maxBuffered {
		buffered.Add(-more)
		return false
	}
	b.held += more
	data := make([]byte, len(b.data), size)
	copy(data, b.data)
	b.data = data
	return true
}

// bytes returns what is held, nil once it was dropped.
func (b *body) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data
}

// drop gives the bytes back. Readers that are at work keep theirs.
func (b *body) drop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	buffered.Add(-b.held)
	b.data, b.held = nil, 0
}

// broken reports that the client's body could not be read to its end.
func (b *body) broken() bool { return b != nil && b.failed.Load() }

// errNoBody is what a transport gets that asks for a body which cannot be sent
// again.
var errNoBody = errors.New("request body cannot be sent again")

// fresh returns a new reader, in the form of http.Request.GetBody. It fails once
// the bytes were dropped.
func (b *body) fresh() (io.ReadCloser, error) {
	data := b.bytes()
	if data == nil {
		return nil, errNoBody
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// get is fresh for whoever does not know whose body was sent. It fails where
// nobody has read the one that stands in for the client's: then what was sent is
// something else, which a handler behind this one has put in its place.
func (b *body) get() (io.ReadCloser, error) {
	if !b.begun.Load() {
		return nil, errNoBody
	}
	return b.fresh()
}

// rewound returns a stand-in for a body that is held whole and was read.
func (b *body) rewound(original io.Closer) io.ReadCloser {
	return &standIn{body: b, first: b.bytes(), rest: http.NoBody, original: original}
}

// standIn takes the place of a client's body: first what was read of it, then
// the rest. It lets go of the bytes when they were read, so that a long stream
// does not keep a long prompt in memory.
type standIn struct {
	body     *body
	first    []byte
	rest     io.Reader
	original io.Closer
}

// Read implements io.Reader.
func (s *standIn) Read(p []byte) (int, error) {
	s.body.begun.Store(true)
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
