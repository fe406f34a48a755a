// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// ErrTooLong says that a request can never run: prompt and answer together exceed the KV cache.
var ErrTooLong = errors.New("prompt and output exceed the KV cache")

// Engine is the model of one vLLM engine. It keeps no time of its own: the caller submits requests and calls
// [Engine.Step] whenever the previous step is over on the caller's clock. An Engine is not safe for concurrent use;
// its owner locks.
type Engine struct {
	cfg      Config
	pool     *pool
	random   *rand.Rand
	slowdown float64

	running []*Request // in order of admission; the last is the youngest
	waiting []*Request // in order of arrival, preempted requests in front

	outstanding int       // prefill tokens that waiting and running requests still need
	stats       Stats     // counters only; the gauges are computed when asked for
	tables      [][]int32 // block tables of ended requests, for reuse

	due    []*Request // requests whose known tokens are all computed at the end of the step
	result Result     // its slices are reused
}

// New returns an idle engine with an empty cache.
func New(cfg Config) *Engine {
	cfg = cfg.withDefaults()
	return &Engine{
		cfg:      cfg,
		pool:     newPool(cfg.KVTokens / cfg.BlockTokens),
		random:   rand.New(rand.NewPCG(cfg.Seed, 0)),
		slowdown: 1,
	}
}

// Config returns the config with defaults filled in.
func (e *Engine) Config() Config { return e.cfg }

// Submit puts a request at the end of the waiting queue. It joins the first step that begins afterwards. The error is
// [ErrTooLong], and then the request is untouched. A request must not be submitted while it is waiting or running.
func (e *Engine) Submit(now time.Duration, r *Request) error {
	// the last output token is never fed back, so it needs no KV
	if e.blocksFor(max(r.PromptTokens, 1)+max(r.OutputTokens-1, 0)) > e.pool.capacity() {
		return ErrTooLong
	}
	r.reset(now)
	e.setPending(r, r.total()-e.findable(r)*e.cfg.BlockTokens)
	e.waiting = append(e.waiting, r)
	return nil
}

// Abort ends a waiting or running request at once. Its blocks stay cached until they are evicted. Results of steps that
// began before may still list the request. Abort of any other request does nothing.
func (e *Engine) Abort(r *Request) {
	switch r.State {
	case Waiting:
		e.waiting = slices.DeleteFunc(e.waiting, func(w *Request) bool { return w == r })
	case Running:
		e.running = slices.DeleteFunc(e.running, func(w *Request) bool { return w == r })
		e.release(r)
	default:
		return
	}
	e.setPending(r, 0)
	r.State = Aborted
}

// Idle reports whether there is nothing to do: [Engine.Step] would take no time.
func (e *Engine) Idle() bool { return len(e.running) == 0 && len(e.waiting) == 0 }

// SetSlowdown makes every later step take factor times as long: 3 is an engine three times slower than configured. A
// factor of 0 or less means 1.
func (e *Engine) SetSlowdown(factor float64) {
	if factor <= 0 {
		factor = 1
	}
	e.slowdown = factor
}

// DropCache forgets all cached blocks that no running request holds, as vLLM does when it goes to sleep.
func (e *Engine) DropCache() { e.pool.drop() }

// Restart empties the cache, sets the counters to 0 and fails every running and waiting request. It returns them, the
// running ones first.
func (e *Engine) Restart() []*Request {
	failed := slices.Concat(e.running, e.waiting)
	for _, r := range failed {
		r.State, r.table, r.pending = Failed, nil, 0
	}
	e.running, e.waiting = nil, nil
	e.outstanding = 0
	e.stats = Stats{}
	e.pool.clear()
	return failed
}

// blocksFor returns how many blocks hold the given number of tokens.
func (e *Engine) blocksFor(tokens int) int {
	return (tokens + e.cfg.BlockTokens - 1) / e.cfg.BlockTokens
}

// setPending changes a request's share of the outstanding prefill tokens.
func (e *Engine) setPending(r *Request, tokens int) {
	e.outstanding += tokens - r.pending
	r.pending = tokens
}

// release gives back the blocks of a request.
func (e *Engine) release(r *Request) {
	e.pool.release(r.table)
	if r.table != nil {
		e.tables = append(e.tables, r.table[:0])
	}
	r.table, r.tip, r.computed, r.prefilled = nil, none, 0, false
}
