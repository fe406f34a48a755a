// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"math/rand/v2"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/fleet"
)

// estimate is what the router sees of a request. It counts bytes instead of
// tokens, so what a writer wrote is longer or shorter for it than for the
// engine, always by the same factor; its blocks are as much longer or shorter.
// Shared beginnings are estimated exactly: whatever the error, it would be the
// same for all who share them.
func (r *run) estimate(q *workload.Request) rules.Request {
	seen := rules.Request{Session: q.Session, Tokens: q.Tokens, Silent: !q.Streamed}
	factor := r.factor(q.Writer)
	if factor != 1 {
		seen.Tokens = q.Shared + int(math.Round(factor*float64(q.Tokens-q.Shared)))
	}
	size := r.engines[0].Engine.Config().BlockTokens
	if factor == 1 && size == fleet.BlockTokens {
		seen.Blocks = q.Blocks
		return seen
	}
	seen.Blocks = make([]uint64, 0, seen.Tokens/fleet.BlockTokens)
	for k := range cap(seen.Blocks) {
		// the router's block ends in the middle of one of the engine's; the
		// name of the one before names it well enough together with k
		end := (k + 1) * fleet.BlockTokens
		if end > q.Shared {
			end = q.Shared + int(float64(end-q.Shared)/factor)
		}
		at := min(end/size, len(q.Blocks)) - 1
		if at < 0 {
			break
		}
		seen.Blocks = append(seen.Blocks, q.Blocks[at]^uint64(k)*0x9e3779b97f4a7c15)
	}
	return seen
}

// factor is how much longer a writer's texts are for the router.
func (r *run) factor(writer uint64) float64 {
	if r.Sigma == 0 || writer == 0 {
		return 1
	}
	return math.Exp(r.Sigma * rand.New(rand.NewPCG(writer, r.Seed)).NormFloat64())
}
