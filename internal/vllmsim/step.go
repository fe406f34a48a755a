// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"slices"
	"time"
)

// Result is what one step did. Its slices are valid until the next call of [Engine.Step].
type Result struct {
	// Duration is how long the step takes, 0 when there was nothing to do. Everything below holds at its end.
	Duration time.Duration
	// First lists the requests that showed their first output, Tokens those that produced one token (again those of
	// First, except embeddings), Finished those that ended.
	First, Tokens, Finished []*Request
	// PrefillTokens and DecodeTokens are the tokens that the step computed, together at most BatchTokens.
	PrefillTokens, DecodeTokens int
	// DecodeContext is the summed context of the requests that decoded, in tokens.
	DecodeContext int
	// Preempted counts the requests that lost their blocks.
	Preempted int
}

// Step schedules and computes one step that begins at now. The engine is then in the state of the step's end: the
// caller lets Duration pass before it shows the result to anyone and calls Step again. What is submitted meanwhile
// joins the next step.
func (e *Engine) Step(now time.Duration) Result {
	e.result = Result{First: e.result.First[:0], Tokens: e.result.Tokens[:0], Finished: e.result.Finished[:0]}
	e.due = e.due[:0]

	budget := e.decode(e.cfg.BatchTokens)
	budget = e.continuePrefills(budget)
	e.admit(now, budget)
	if e.result.PrefillTokens+e.result.DecodeTokens == 0 {
		return e.result
	}
	e.result.Duration = e.duration(e.result.PrefillTokens, e.result.DecodeContext)
	e.finish(now + e.result.Duration)

	e.stats.Steps++
	e.stats.PrefillTokens += int64(e.result.PrefillTokens)
	e.stats.Preemptions += int64(e.result.Preempted)
	return e.result
}

// decode gives each decoding request one token, the oldest first, and returns the rest of the budget.
func (e *Engine) decode(budget int) int {
	// the youngest requests may be preempted on the way, so the length is read anew each time
	for i := 0; i < len(e.running) && budget > 0; i++ {
		r := e.running[i]
		if !r.prefilled || !e.grow(r) {
			continue
		}
		budget--
		e.compute(r, 1)
		e.result.DecodeTokens++
		e.result.DecodeContext += r.computed
	}
	return budget
}

// grow makes room for one more token. When no block is free it preempts the youngest running request, over and over; it
// reports false when that was r itself.
func (e *Engine) grow(r *Request) bool {
	if r.computed < len(r.table)*e.cfg.BlockTokens {
		return true
	}
	for e.pool.free == 0 {
		youngest := e.running[len(e.running)-1]
		e.preempt(youngest)
		if youngest == r {
			return false
		}
	}
	r.table = append(r.table, e.pool.take())
	return true
}

// preempt takes all blocks of the youngest running request and puts it in front of the queue, to be computed again.
func (e *Engine) preempt(r *Request) {
	e.running = e.running[:len(e.running)-1]
	e.release(r)
	r.State = Waiting
	r.Preemptions++
	e.setPending(r, r.total()-e.findable(r)*e.cfg.BlockTokens)
	e.waiting = slices.Insert(e.waiting, 0, r)
	e.result.Preempted++
}

// continuePrefills spends the budget on prefills that earlier steps have begun and returns what is left of it.
func (e *Engine) continuePrefills(budget int) int {
	for _, r := range e.running {
		if budget == 0 {
			break
		}
		if !r.prefilled {
			budget -= e.prefill(r, budget)
		}
	}
	return budget
}

// admit moves requests from the queue into the batch until the budget, the batch or the KV cache is full. The head of
// the queue holds up those behind it. A step that preempts admits nothing: the request at the head has just lost a block
// to an older one and does not fit.
func (e *Engine) admit(now time.Duration, budget int) {
	for budget > 0 && len(e.waiting) > 0 && len(e.running) < e.cfg.MaxSeqs {
		r := e.waiting[0]
		if !e.reserve(r) {
			return
		}
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.running = append(e.running, r)
		r.State = Running
		cached := r.computed
		e.setPending(r, r.total()-cached)
		if !r.admitted {
			r.admitted, r.Admitted, r.CachedTokens = true, now, cached
			e.stats.PrefixQueries += int64(r.PromptTokens)
			e.stats.PrefixHits += int64(cached)
		}
		budget -= e.prefill(r, budget)
	}
}

// reserve holds the cached blocks of a request and takes blocks for the rest of its known tokens, or changes nothing
// and reports false when they do not fit.
func (e *Engine) reserve(r *Request) bool {
	if r.refusedAt == e.pool.version {
		return false
	}
	if r.table == nil && len(e.tables) > 0 {
		r.table = e.tables[len(e.tables)-1]
		e.tables = e.tables[:len(e.tables)-1]
	}
	idle := 0 // found blocks that are in the free queue
	for k := range e.reusable(r) {
		hash, ok := r.hash(k, e.cfg.BlockTokens)
		if !ok {
			break
		}
		b := e.pool.find(hash, r.tip)
		if b == none {
			break
		}
		if e.pool.blocks[b].refs == 0 {
			idle++
		}
		r.table, r.tip = append(r.table, b), b
	}
	missing := e.blocksFor(r.total()) - len(r.table)
	if missing > e.pool.free-idle {
		r.table, r.tip, r.refusedAt = r.table[:0], none, e.pool.version
		return false
	}
	for _, b := range r.table {
		e.pool.hold(b)
	}
	r.computed = len(r.table) * e.cfg.BlockTokens
	for range missing {
		r.table = append(r.table, e.pool.take())
	}
	return true
}

// prefill computes up to budget tokens of a request's known tokens and returns how many.
func (e *Engine) prefill(r *Request, budget int) int {
	n := min(r.total()-r.computed, budget)
	e.setPending(r, r.pending-n)
	e.compute(r, n)
	e.result.PrefillTokens += n
	return n
}

// compute adds n tokens to a request's KV. Blocks are findable as soon as they are scheduled, as in vLLM: a request
// admitted later in the same step shares them.
func (e *Engine) compute(r *Request, n int) {
	before := r.computed / e.cfg.BlockTokens
	r.computed += n
	if !e.cfg.NoPrefixCache {
		for k := before; k < r.computed/e.cfg.BlockTokens; k++ {
			hash, ok := r.hash(k, e.cfg.BlockTokens)
			if !ok {
				break
			}
			r.tip = e.pool.publish(r.table[k], hash, r.tip)
		}
	}
	if r.computed == r.total() {
		e.due = append(e.due, r)
	}
}

// duration is the time a step takes.
func (e *Engine) duration(prefillTokens, decodeContext int) time.Duration {
	seconds := e.cfg.StepTime.Seconds() +
		float64(prefillTokens)/e.cfg.PrefillRate +
		float64(decodeContext)/e.cfg.DecodeContextRate
	seconds *= e.slowdown
	if e.cfg.Jitter > 0 {
		seconds *= 1 + e.cfg.Jitter*(2*e.random.Float64()-1)
	}
	// a step of no time at all would look like no step
	return max(time.Duration(seconds*float64(time.Second)), 1)
}

// finish gives one token to every request whose known tokens are computed and ends those that have all of theirs.
func (e *Engine) finish(end time.Duration) {
	for _, r := range e.due {
		r.prefilled = true
		if !r.shown {
			r.shown, r.FirstOutput = true, end
			e.result.First = append(e.result.First, r)
			e.stats.PromptTokens += int64(r.PromptTokens)
			e.stats.CachedTokens += int64(r.CachedTokens)
		}
		if r.Generated < r.OutputTokens {
			r.Generated++
			e.stats.GeneratedTokens++
			e.result.Tokens = append(e.result.Tokens, r)
		}
		if r.Generated == r.OutputTokens {
			r.State, r.Done = Finished, end
			e.result.Finished = append(e.result.Finished, r)
			e.stats.Finished++
		}
	}
	if len(e.result.Finished) > 0 {
		e.running = slices.DeleteFunc(e.running, func(r *Request) bool { return r.State == Finished })
		for _, r := range e.result.Finished {
			e.release(r)
		}
	}
}
