// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	burstSize    = 128
	sessionTurns = 12
	outputTokens = 16
)

// result is what one policy did.
type result struct {
	policy string

	// burst are the times to first token, sorted, and burstRequests and
	// burstTokens what each server got: requests, and tokens to prefill
	burst         []time.Duration
	burstRequests []int
	burstTokens   []int64

	// session are the times to first token turn by turn, and sessionRequests
	// where they went
	session         []time.Duration
	sessionRequests []int
	sessionTokens   []int64
}

// measure sends a burst and then a conversation through Caddy.
func measure(ctx context.Context, out io.Writer, s *stage) (result, error) {
	r := result{policy: s.policy}
	before := s.counters()
	times, err := s.burst(ctx, out)
	if err != nil {
		return r, err
	}
	slices.Sort(times)
	r.burst = times
	after := s.counters()
	r.burstRequests, r.burstTokens = after.minus(before)

	if r.session, err = s.session(ctx, out); err != nil {
		return r, err
	}
	r.sessionRequests, r.sessionTokens = s.counters().minus(after)
	return r, nil
}

// burst sends cold prompts of very different lengths at once: most are short,
// every eighth is long.
func (s *stage) burst(ctx context.Context, out io.Writer) ([]time.Duration, error) {
	random := rand.New(rand.NewPCG(1, 2))
	times := make([]time.Duration, burstSize)
	errs := make([]error, burstSize)
	var done atomic.Int32
	finish := progress(out, fmt.Sprintf("%-13s burst of %d cold prompts", s.policy, burstSize), &done, burstSize)
	defer finish()
	var wg sync.WaitGroup
	for i := range burstSize {
		tokens := 500 + random.IntN(2000)
		if i%8 == 0 {
			tokens = 30_000 + random.IntN(30_000)
		}
		text := strings.Repeat(fmt.Sprintf("prompt %4d ", i), tokens*4/12)
		wg.Go(func() {
			times[i], errs[i] = s.chat(ctx, "", []string{text}, outputTokens)
			done.Add(1)
		})
	}
	wg.Wait()
	return times, errors.Join(errs...)
}

// session is one conversation whose prompt grows with every turn.
func (s *stage) session(ctx context.Context, out io.Writer) ([]time.Duration, error) {
	var done atomic.Int32
	finish := progress(out, fmt.Sprintf("%-13s conversation of %d turns", s.policy, sessionTurns), &done, sessionTurns)
	defer finish()
	var times []time.Duration
	messages := []string{strings.Repeat("a long first message ", 24_000*4/21)}
	for turn := range sessionTurns {
		took, err := s.chat(ctx, "the demo's session", messages, outputTokens)
		if err != nil {
			return nil, err
		}
		times = append(times, took)
		messages = append(messages, fmt.Sprintf("answer %d", turn), strings.Repeat(fmt.Sprintf("question %d ", turn), 150))
		done.Add(1)
	}
	return times, nil
}

// chat sends one streamed request, reads it to its end and returns the time to
// its first event on the clock of the simulated servers.
func (s *stage) chat(ctx context.Context, session string, texts []string, outputTokens int) (time.Duration, error) {
	messages := make([]map[string]string, len(texts))
	for i, text := range texts {
		messages[i] = map[string]string{"role": []string{"user", "assistant"}[i%2], "content": text}
	}
	body, err := json.Marshal(map[string]any{"stream": true, "max_tokens": outputTokens, "messages": messages})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Site+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set("X-Session-Id", session)
	}
	start := time.Now()
	res, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answered %s", s.Site, res.Status)
	}
	reader := bufio.NewReader(res.Body)
	if _, err := reader.ReadByte(); err != nil {
		return 0, fmt.Errorf("reading the first event: %w", err)
	}
	first := time.Since(start)
	_, err = io.Copy(io.Discard, reader)
	return time.Duration(float64(first) * s.speed), err
}

// counters are what the servers have done so far.
type counters struct {
	requests []int
	tokens   []int64
}

func (s *stage) counters() counters {
	var c counters
	for _, e := range s.Hosts {
		c.requests = append(c.requests, e.Server().Counts()["/v1/chat/completions"])
		c.tokens = append(c.tokens, e.Server().Stats().PrefillTokens)
	}
	return c
}

func (c counters) minus(before counters) (requests []int, tokens []int64) {
	for i := range c.requests {
		requests = append(requests, c.requests[i]-before.requests[i])
		tokens = append(tokens, c.tokens[i]-before.tokens[i])
	}
	return requests, tokens
}
