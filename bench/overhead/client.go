// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// prompt is a chat body in two parts with a number of promptDigits between them
// that is another one for each request, at the beginning of the text.
type prompt struct{ head, tail string }

const promptDigits = 16

var promptsSent atomic.Uint64

// newPrompt is a prompt of that many bytes: code, with its quotes and line ends
// escaped, as it is in the requests of coding agents.
func newPrompt(size int, stream bool) prompt {
	p := prompt{
		head: `{"model":"m","stream":` + strconv.FormatBool(stream) + `,"messages":[{"role":"system","content":"`,
		tail: `"},{"role":"user","content":"Find the bug."}]}`,
	}
	random := rand.New(rand.NewPCG(1, uint64(size)))
	var text strings.Builder
	room := size - len(p.head) - promptDigits - len(p.tail)
	for text.Len() < room {
		line := fmt.Sprintf(`\tif err := fn%d(ctx, \"name%d\"); err != nil {\n\t\treturn err\n\t}\n`, random.IntN(1000), random.IntN(1000))
		if text.Len()+len(line) > room {
			// no escape may be cut in two
			line = strings.Repeat(" ", room-text.Len())
		}
		text.WriteString(line)
	}
	p.tail = text.String() + p.tail
	return p
}

// body is the prompt with its next number.
func (p prompt) body() (io.Reader, int64) {
	number := fmt.Sprintf("%0*x", promptDigits, promptsSent.Add(1))
	return io.MultiReader(strings.NewReader(p.head), strings.NewReader(number), strings.NewReader(p.tail)),
		int64(len(p.head) + len(number) + len(p.tail))
}

// client sends requests to one side. What they share is made once, so that a
// request costs the client as little as may be.
type client struct {
	proxy  *proxy
	url    *url.URL
	header http.Header
}

// newClient returns a client with a session of its own.
func (p *proxy) newClient(side int, path, answer string) *client {
	c := &client{
		proxy: p,
		url:   &url.URL{Scheme: "http", Host: hostOf(side), Path: path},
		header: http.Header{
			"Content-Type": {"application/json"},
			"X-Session-Id": {strconv.FormatUint(rand.Uint64(), 16)},
		},
	}
	if answer != "" {
		c.header.Set(answerHeader, answer)
	}
	return c
}

const chatPath = "/v1/chat/completions"

// send sends a body and returns the response.
func (c *client) send(ctx context.Context, body io.Reader, length int64) (*http.Response, error) {
	r := (&http.Request{
		Method: http.MethodPost, URL: c.url, Header: c.header, Host: c.url.Host,
		Body: io.NopCloser(body), ContentLength: length,
	}).WithContext(ctx)
	res, err := c.proxy.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("status %s", res.Status)
	}
	return res, nil
}

// exchange sends a body, reads the whole answer and returns how long its first
// byte took and how long all of it.
func (c *client) exchange(ctx context.Context, body io.Reader, length int64) (first, all time.Duration, err error) {
	begin := time.Now()
	res, err := c.send(ctx, body, length)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	var buf [1024]byte
	if _, err := res.Body.Read(buf[:]); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, fmt.Errorf("reading the answer: %w", err)
	}
	first = time.Since(begin)
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0, 0, fmt.Errorf("reading the answer: %w", err)
	}
	return first, time.Since(begin), nil
}
