// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/workload"
)

// blockTokens is the length of the workload's blocks: 1 KiB of text.
const blockTokens = 256

// driver runs the agents against some sites.
type driver struct {
	settings
	sites  []string
	client *http.Client
	start  time.Time

	measures measures
	running  atomic.Int32
}

// drive lets agents arrive until warm-up and measurement are over, and waits
// for those under way.
func (d *driver) drive(ctx context.Context, rate float64) {
	end := d.warmUp + d.measure
	ctx, cancel := context.WithDeadline(ctx, d.start.Add(d.real(end)))
	defer cancel()
	arrivals := workload.Agents{Rate: rate, BlockTokens: blockTokens, Seed: d.seed, Within: d.warmUp / 2}.Arrivals()
	var wg sync.WaitGroup
	for {
		at, script, ok := arrivals()
		if !ok || at > end || !d.sleepUntil(ctx, at) {
			break
		}
		wg.Go(func() {
			d.running.Add(1)
			defer d.running.Add(-1)
			d.follow(ctx, script)
		})
	}
	<-ctx.Done()
	wg.Wait()
}

// follow is the life of one agent.
func (d *driver) follow(ctx context.Context, script *workload.Script) {
	for i, step := range script.Steps {
		if !d.sleepUntil(ctx, d.now()+step.Think) {
			return
		}
		request := script.Request(i)
		sent := d.now()
		first, err := d.send(ctx, &request)
		if ctx.Err() != nil {
			return
		}
		d.measures.add(sent >= d.warmUp, first-sent, err)
	}
}

// now is the time on the servers' clock.
func (d *driver) now() time.Duration {
	return time.Duration(float64(time.Since(d.start)) * d.speed)
}

// real turns a duration on the servers' clock into one on the real clock.
func (d *driver) real(t time.Duration) time.Duration { return time.Duration(float64(t) / d.speed) }

// sleepUntil waits for a time on the servers' clock, and is false if ctx ends
// before.
func (d *driver) sleepUntil(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(time.Until(d.start.Add(d.real(at))))
	defer timer.Stop()
	select {
	case <-timer.C:
		late := d.now() - at
		d.measures.woke(late)
		return true
	case <-ctx.Done():
		return false
	}
}

// send sends one request, reads the whole answer and returns when its first
// event came.
func (d *driver) send(ctx context.Context, q *workload.Request) (first time.Duration, err error) {
	body, err := json.Marshal(map[string]any{
		"model": "sim-model", "stream": true, "max_tokens": q.Output,
		"messages": []map[string]string{{"role": "user", "content": text(q)}},
	})
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+d.sites[rand.IntN(len(d.sites))]+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Session-Id", fmt.Sprintf("%x", q.Session))
	res, err := d.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %s", res.Status)
	}
	buf := make([]byte, 16<<10)
	if _, err := io.ReadAtLeast(res.Body, buf, 1); err != nil {
		return 0, fmt.Errorf("reading the first event: %w", err)
	}
	first = d.now()
	return first, drain(res, buf)
}

// text spells a prompt out: every block has its own text, and the end of the
// prompt that fills no block is its writer's.
func text(q *workload.Request) string {
	var s strings.Builder
	s.Grow(q.Tokens * 4)
	for _, block := range q.Blocks {
		s.WriteString(blockText(block))
	}
	rest := blockText(q.Writer)
	s.WriteString(rest[:min(max(q.Tokens*4-s.Len(), 0), len(rest))])
	return s.String()
}

var blockTexts sync.Map // of names to their text

// blockText is the text of a block, the same for the same name.
func blockText(name uint64) string {
	if text, ok := blockTexts.Load(name); ok {
		return text.(string)
	}
	random := rand.New(rand.NewPCG(name, 0))
	var s strings.Builder
	for range blockTokens {
		fmt.Fprintf(&s, "%03x ", random.Uint64N(1<<12))
	}
	text, _ := blockTexts.LoadOrStore(name, s.String())
	return text.(string)
}
