// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "time"

// State says where a request stands in its engine.
type State int

const (
	// Unsubmitted is the state of a request that no engine has seen.
	Unsubmitted State = iota
	// Waiting is the state of a request in the queue, also after a preemption.
	Waiting
	// Running is the state of a request that holds KV blocks.
	Running
	// Finished is the state of a request that has produced all of its output.
	Finished
	// Aborted is the state of a request that its owner took back.
	Aborted
	// Failed is the state of a request that a restart of the engine ended.
	Failed
)

// Request is one prompt and its answer. The caller fills the first group of fields before [Engine.Submit] and leaves
// them alone until the request has ended; the engine fills the second group, which the caller may read between calls
// to the engine. The slices are read, never changed, so requests may share them. A request that has ended may be
// submitted again.
type Request struct {
	// ID is for the caller; the engine does not look at it.
	ID string
	// PromptTokens is the length of the prompt. Less than 1 counts as 1.
	PromptTokens int
	// Blocks names the whole blocks of the prompt: hash k stands for the first (k+1)*BlockTokens tokens. Hashes past
	// PromptTokens/BlockTokens are ignored; with fewer the rest of the prompt is computed and not cached.
	Blocks []uint64
	// OutputBlocks continues Blocks over the answer: its first hash names the block that the end of the prompt and the
	// first output tokens fill together. Optional: without it the answer is not cached. It is ignored when Blocks is
	// shorter than the prompt.
	OutputBlocks []uint64
	// OutputTokens is how many tokens the request decodes. 0 makes it an embedding: finished when prefilled.
	OutputTokens int

	// State says where the request stands.
	State State
	// CachedTokens is how much of the prompt the prefix cache held when the request was admitted first.
	CachedTokens int
	// Generated is the number of output tokens so far.
	Generated int
	// Preemptions counts how often the request lost its blocks.
	Preemptions int
	// Submitted, Admitted, FirstOutput and Done are times on the caller's clock. Admitted is that of the first
	// admission, FirstOutput the end of the step that finished the prefill, Done the end of the last step. They are
	// meaningful once the request has got that far.
	Submitted, Admitted, FirstOutput, Done time.Duration

	table     []int32 // blocks held, in order of the tokens
	tip       int32   // cached block that ends the longest cached prefix of table, or none
	computed  int     // tokens whose KV is in table
	pending   int     // share of Engine.outstanding
	refusedAt uint64  // pool version when admission was refused last
	prefilled bool    // every token but the newest is computed: the request decodes
	admitted  bool    // was running at least once
	shown     bool    // has shown its first output
}

// total is the number of tokens known so far: what a prefill has to cover.
func (r *Request) total() int { return r.PromptTokens + r.Generated }

// reset makes a request look as if no engine had seen it, except for what the caller filled in.
func (r *Request) reset(now time.Duration) {
	*r = Request{
		ID:           r.ID,
		PromptTokens: max(r.PromptTokens, 1),
		Blocks:       r.Blocks,
		OutputBlocks: r.OutputBlocks,
		OutputTokens: max(r.OutputTokens, 0),
		State:        Waiting,
		Submitted:    now,
		tip:          none,
	}
}

// hash returns the name of block k of prompt and answer, and whether it has one.
func (r *Request) hash(k, blockTokens int) (uint64, bool) {
	full := r.PromptTokens / blockTokens
	if k < full {
		if k < len(r.Blocks) {
			return r.Blocks[k], true
		}
		return 0, false
	}
	if len(r.Blocks) < full || k-full >= len(r.OutputBlocks) {
		return 0, false
	}
	return r.OutputBlocks[k-full], true
}
