// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// Stats is what an engine reports of itself, as of the end of the step that was computed last. The counters start at 0
// with the engine and with each restart.
type Stats struct {
	// Running and Waiting are numbers of requests. A request in prefill is running.
	Running, Waiting int
	// KVUsage is the share of blocks that running requests hold, 0 to 1. Blocks that are only cached count as free.
	KVUsage float64

	// PrefillTokens counts tokens computed by prefill, step by step, including those computed again after a preemption.
	PrefillTokens int64
	// PromptTokens counts the prompts of requests whose prefill has ended; CachedTokens is the part of them that came
	// from the prefix cache.
	PromptTokens, CachedTokens int64
	// GeneratedTokens counts output tokens.
	GeneratedTokens int64
	// PrefixQueries and PrefixHits count prompt tokens looked up and found in the prefix cache at first admission.
	PrefixQueries, PrefixHits int64
	// Preemptions, Steps and Finished count events. Aborted requests are not finished.
	Preemptions, Steps, Finished int64
}

// sum returns the numbers of engines of one size together: KVUsage is the share of all their blocks.
func sum(list []Stats) Stats {
	var total Stats
	for _, s := range list {
		total.Running += s.Running
		total.Waiting += s.Waiting
		total.KVUsage += s.KVUsage / float64(len(list))
		total.PrefillTokens += s.PrefillTokens
		total.PromptTokens += s.PromptTokens
		total.CachedTokens += s.CachedTokens
		total.GeneratedTokens += s.GeneratedTokens
		total.PrefixQueries += s.PrefixQueries
		total.PrefixHits += s.PrefixHits
		total.Preemptions += s.Preemptions
		total.Steps += s.Steps
		total.Finished += s.Finished
	}
	return total
}

// Stats returns the engine's numbers.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), len(e.waiting)
	s.KVUsage = float64(e.pool.capacity()-e.pool.free) / float64(e.pool.capacity())
	return s
}

// CachedPrefix returns how many leading tokens of a block chain are cached now, and changes nothing. A prompt that is
// cached completely still computes its last block, which the result does not account for.
func (e *Engine) CachedPrefix(blocks []uint64) int {
	if e.cfg.NoPrefixCache {
		return 0
	}
	parent := none
	for k, hash := range blocks {
		b := e.pool.find(hash, parent)
		if b == none {
			return k * e.cfg.BlockTokens
		}
		parent = b
	}
	return len(blocks) * e.cfg.BlockTokens
}

// OutstandingPrefill returns the prefill tokens that running and waiting requests still need. For a waiting request it
// counts what was not cached when it entered the queue, so requests that wait for the same prefix count it each.
func (e *Engine) OutstandingPrefill() int { return e.outstanding }

// findable returns how many leading blocks of a request are cached, leaving out the block of the last known token,
// which is computed in any case.
func (e *Engine) findable(r *Request) int {
	limit := e.reusable(r)
	parent := none
	for k := range limit {
		hash, ok := r.hash(k, e.cfg.BlockTokens)
		if !ok {
			return k
		}
		b := e.pool.find(hash, parent)
		if b == none {
			return k
		}
		parent = b
	}
	return limit
}

// reusable returns how many blocks of a request may come from the cache at most.
func (e *Engine) reusable(r *Request) int {
	if e.cfg.NoPrefixCache {
		return 0
	}
	return (r.total() - 1) / e.cfg.BlockTokens
}
