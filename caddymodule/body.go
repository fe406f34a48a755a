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
const firstBuffer = 512 << 10

// body is a request body read into memory. Its bytes never change, so any
// number of readers may be at work on them.
type body struct {
	mu   sync.Mutex
	data []byte
	held int64
}

// readBody reads the body of r up to maxBody bytes, as long as no more than
// maxBuffered bytes are held over all requests, and puts a replacement in its
// place that yields the very same bytes and the same error. whole reports that
// this was all of the body, so that it can be sent again.
func readBody(r *http.Request, maxBody, maxBuffered int64) (b *body, whole bool) {
	b = new(body)
	original := r.Body
	err := b.fill(original, r.ContentLength, maxBody, maxBuffered)
	switch {
	case err == io.EOF: //nolint:errorlint // an error that wraps it is a failure to pass on
		r.Body = &replay{body: b, closer: original}
		return b, true
	case err != nil:
		r.Body = replaced{io.MultiReader(bytes.NewReader(b.data), failing{err}), original}
	default:
		r.Body = replaced{io.MultiReader(bytes.NewReader(b.data), original), original}
	}
	return b, false
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

// errBodyDropped is what a transport gets that asks for a body again after the
// response has begun.
var errBodyDropped = errors.New("request body is no longer held")

// get returns a fresh reader, in the form of http.Request.GetBody.
func (b *body) get() (io.ReadCloser, error) {
	if b.bytes() == nil {
		return nil, errBodyDropped
	}
	return &replay{body: b}, nil
}

// replay reads a body that is held whole. It takes hold of the bytes with its
// first Read and lets go of them at the end, so that a long stream does not
// keep a long prompt in memory, and an engine that answers early still gets
// all of it.
type replay struct {
	body   *body
	data   []byte
	begun  bool
	closer io.Closer
}

// Read implements io.Reader.
func (p *replay) Read(to []byte) (int, error) {
	if !p.begun {
		p.begun = true
		if p.data = p.body.bytes(); p.data == nil {
			return 0, errBodyDropped
		}
	}
	if len(p.data) == 0 {
		p.data = nil
		return 0, io.EOF
	}
	n := copy(to, p.data)
	p.data = p.data[n:]
	return n, nil
}

// Close closes the body that this one stands in for.
func (p *replay) Close() error {
	if p.closer == nil {
		return nil
	}
	return p.closer.Close()
}

// replaced stands in for a body of which the first part was read.
type replaced struct {
	io.Reader
	original io.Closer
}

// Close closes the original body.
func (p replaced) Close() error { return p.original.Close() }

// failing is a reader that has failed.
type failing struct{ err error }

// Read returns the error.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
