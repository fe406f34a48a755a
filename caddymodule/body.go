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

// trusted is how many times what it has sent a client is believed to send in
// all. Growing to the announced length at once spares copies and garbage.
const trusted = 8

// inOneWrite is up to which size a transport gets a body as a type that it knows
// to be in memory. It then writes it together with the headers.
const inOneWrite = 4 << 10

// body is a request body read into memory. Its bytes never change, so any
// number of readers may be at work on them.
type body struct {
	mu   sync.Mutex
	data []byte
	held int64

	// lent says that a reader was given out that takes the place of the
	// stand-in, and dropped that no further one is
	lent, dropped bool

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
	r.Body = &standIn{body: b, rest: rest, original: original}
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
			size = min(nextSize(size, length+1), maxBody+1)
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

// nextSize is how large a full buffer of size bytes is made: as announced, if the
// client is believed that, else twice as large.
func nextSize(size, announced int64) int64 {
	if size < announced && announced <= trusted*size {
		return announced
	}
	return 2 * size
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
	if b.dropped {
		return nil
	}
	return b.data
}

// drop gives the bytes back. Readers that are at work keep theirs. A stand-in
// that nobody has read has them too, if no other reader was given out instead:
// a transport may get an answer before it has begun to send.
func (b *body) drop() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	buffered.Add(-b.held)
	b.held, b.dropped = 0, true
	if b.lent || b.begun.Load() {
		b.data = nil
	}
}

// begin says that the stand-in is read, and returns its bytes.
func (b *body) begin() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun.Store(true)
	data := b.data
	if b.dropped {
		b.data = nil
	}
	return data
}

// broken reports that the client's body could not be read to its end.
func (b *body) broken() bool { return b != nil && b.failed.Load() }

// errNoBody is what a transport gets that asks for a body which cannot be sent
// again.
var errNoBody = errors.New("request body cannot be sent again")

// fresh returns a new reader, in the form of http.Request.GetBody. It fails once
// the bytes were dropped.
func (b *body) fresh() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped || b.data == nil {
		return nil, errNoBody
	}
	b.lent = true
	if len(b.data) <= inOneWrite {
		return io.NopCloser(bytes.NewReader(b.data)), nil
	}
	return &reader{b.data}, nil
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
	return &standIn{body: b, begun: true, first: b.bytes(), rest: http.NoBody, original: original}
}
