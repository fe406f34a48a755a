// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
)

// heldPrompt is the size of the prompts of the open streams.
const heldPrompt = 50_000

// openers is how many streams are opened at once.
const openers = 32

// memory is what one side needs, in bytes.
type memory struct {
	// StreamRSS and StreamHeap are for one open stream, of the whole process
	// and of its heap and stacks
	StreamRSS  float64 `json:"stream_rss"`
	StreamHeap float64 `json:"stream_heap"`

	// RSS is the process while all of them are open
	RSS float64 `json:"rss"`

	// Response and Upload are by how much the heap grew at most in the long
	// response and the long upload
	Response float64 `json:"response_heap"`
	Upload   float64 `json:"upload_heap"`
}

// measureMemory measures the sides in turn, each time in a new process, which
// no earlier traffic has left its memory to.
func (s settings) measureMemory(ctx context.Context, servers *upstreams, r *results) error {
	if s.cpuProfile != "" {
		return nil
	}
	var rounds [2][]memory
	for range s.memory {
		for side := range rounds {
			fmt.Fprintln(os.Stderr, "memory of", s.policies[side])
			m, err := s.measureSide(ctx, servers, side)
			if err != nil {
				return fmt.Errorf("%s: %w", s.policies[side], err)
			}
			rounds[side] = append(rounds[side], m)
		}
	}
	r.summarize(s, rounds)
	return nil
}

func (s settings) measureSide(ctx context.Context, servers *upstreams, side int) (m memory, err error) {
	p, err := s.startProxy(ctx, servers, "")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	response := p.newClient(side, chatPath, strconv.FormatInt(s.transfer, 10))
	m.Response, err = p.peak(func() error {
		body, length := newPrompt(1000, true).body()
		_, _, err := response.exchange(ctx, body, length)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("long response: %w", err)
	}
	upload := p.newClient(side, "/upload", "")
	m.Upload, err = p.peak(func() error {
		_, _, err := upload.exchange(ctx, io.LimitReader(zeros{}, s.transfer), s.transfer)
		return err
	})
	if err != nil {
		return m, fmt.Errorf("long upload: %w", err)
	}
	if err := s.measureStreams(ctx, p, side, &m); err != nil {
		return m, fmt.Errorf("open streams: %w", err)
	}
	return m, nil
}

// peak returns by how much the heap of Caddy is larger at most while f runs.
func (p *proxy) peak(f func() error) (float64, error) {
	if _, err := p.ask(askTrim); err != nil {
		return 0, err
	}
	before, err := p.ask(askWatch)
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := p.ask(askUsage)
	return max(float64(after.Peak)-float64(before.Objects), 0), err
}

// measureStreams measures with no stream and with all of them open. A few have
// been open before, so that what is made once is not counted.
func (s settings) measureStreams(ctx context.Context, p *proxy, side int, m *memory) error {
	closeAll, err := p.hold(ctx, side, max(s.streams/20, 1))
	if err != nil {
		return err
	}
	closeAll()
	before, err := p.ask(askTrim)
	if err != nil {
		return err
	}
	closeAll, err = p.hold(ctx, side, s.streams)
	if err != nil {
		return err
	}
	defer closeAll()
	after, err := p.ask(askTrim)
	if err != nil {
		return err
	}
	m.RSS = float64(after.RSS)
	m.StreamRSS = (float64(after.RSS) - float64(before.RSS)) / float64(s.streams)
	m.StreamHeap = (float64(after.Heap) - float64(before.Heap)) / float64(s.streams)
	return nil
}

// hold opens streams and returns when each has shown its first event.
func (p *proxy) hold(ctx context.Context, side, streams int) (closeAll func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex
	var open []*http.Response
	closeAll = func() {
		cancel()
		for _, res := range open {
			res.Body.Close()
		}
	}
	body := newPrompt(heldPrompt, true)
	todo := make(chan struct{}, streams)
	for range streams {
		todo <- struct{}{}
	}
	close(todo)
	var wg sync.WaitGroup
	for range openers {
		wg.Go(func() {
			for range todo {
				res, failure := p.openStream(ctx, side, body)
				mu.Lock()
				if failure == nil {
					open = append(open, res)
				}
				err = errors.Join(err, failure)
				mu.Unlock()
				if failure != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if err != nil {
		closeAll()
		return nil, err
	}
	return closeAll, nil
}

// openStream sends a request and reads the first event of its answer.
func (p *proxy) openStream(ctx context.Context, side int, body prompt) (*http.Response, error) {
	reader, length := body.body()
	res, err := p.newClient(side, chatPath, answerHold).send(ctx, reader, length)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(res.Body, make([]byte, len(event))); err != nil {
		res.Body.Close()
		return nil, fmt.Errorf("reading the first event: %w", err)
	}
	return res, nil
}

// zeros is an endless upload.
type zeros struct{}

// Read implements io.Reader. What p holds is as good as anything else.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }
