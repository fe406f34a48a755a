// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// kind is a kind of request.
type kind struct {
	name    string
	size    int
	clients int
	stream  bool
}

func (s settings) kinds() []kind {
	return []kind{
		{name: "1 KB", size: 1000, clients: 1},
		{name: "1 KB", size: 1000, clients: s.clients},
		{name: "500 KB", size: 500_000, clients: 1},
		{name: "500 KB", size: 500_000, clients: s.clients},
		{name: "1 KB streamed, first byte", size: 1000, clients: 1, stream: true},
	}
}

// turn is what one side did in its turn.
type turn struct {
	elapsed time.Duration
	used    usage // in the turn
	times   []time.Duration
}

// measureRequests measures every kind of request, the sides in turn.
func (s settings) measureRequests(ctx context.Context, servers *upstreams, r *results) (err error) {
	p, err := s.startProxy(ctx, servers, s.cpuProfile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	for _, k := range s.kinds() {
		fmt.Fprintf(os.Stderr, "%s, %d at once\n", k.name, k.clients)
		var turns [2][]turn
		// the first round warms up
		for round := range s.rounds + 1 {
			for i := range turns {
				// who goes first changes, so that no drift favors one side
				side := (i + round) % 2
				t, err := p.takeTurn(ctx, k, side, s.turn)
				if err != nil {
					return fmt.Errorf("%s through %s: %w", k.name, s.policies[side], err)
				}
				if round > 0 {
					turns[side] = append(turns[side], t)
				}
			}
		}
		r.Requests = append(r.Requests, compare(k, turns))
	}
	return nil
}

// takeTurn sends requests for that long. It waits for those under way.
func (p *proxy) takeTurn(ctx context.Context, k kind, side int, length time.Duration) (t turn, err error) {
	// so that nobody pays for the garbage of the turn before
	before, err := p.ask(askCollect)
	if err != nil {
		return t, err
	}
	var mu sync.Mutex
	var errs error
	var wg sync.WaitGroup
	body := newPrompt(k.size, k.stream)
	begin := time.Now()
	for range k.clients {
		wg.Go(func() {
			times, err := p.repeat(ctx, k, side, body, begin.Add(length))
			mu.Lock()
			defer mu.Unlock()
			t.times = append(t.times, times...)
			errs = errors.Join(errs, err)
		})
	}
	wg.Wait()
	t.elapsed = time.Since(begin)
	after, err := p.ask(askUsage)
	t.used = usage{
		CPU:       after.CPU - before.CPU,
		Allocated: after.Allocated - before.Allocated,
		Mallocs:   after.Mallocs - before.Mallocs,
	}
	slices.Sort(t.times)
	return t, errors.Join(errs, err)
}

// repeat is one client's turn: at least one request, and the next one as soon as
// one is answered.
func (p *proxy) repeat(ctx context.Context, k kind, side int, body prompt, end time.Time) ([]time.Duration, error) {
	answer := ""
	if k.stream {
		answer = answerStream
	}
	c := p.newClient(side, chatPath, answer)
	var times []time.Duration
	for {
		reader, length := body.body()
		first, all, err := c.exchange(ctx, reader, length)
		if err != nil {
			return times, err
		}
		if k.stream {
			all = first
		}
		times = append(times, all)
		if time.Now().After(end) {
			return times, nil
		}
	}
}
