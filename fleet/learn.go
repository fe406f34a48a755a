// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// bytesPerToken is what estimates are made with.
const bytesPerToken = 4

// maxModels is of how many models something is learned. They are those that
// engines have answered for, so clients cannot make them up.
const maxModels = 256

// Usage takes in what the response to the placed request says of its prompt: it
// corrects the estimates of the model's prompts to come, and tells how much of
// what was believed to be cached was. It must come before [Placement.End].
func (p *Placement) Usage(u engines.Usage, now time.Time) {
	f := p.fleet
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.failed || !p.reservation.Open() {
		return
	}
	if p.request.Learns {
		f.estimate(p.request.Model).Learn(p.request.TextBytes, u.PromptTokens, bytesPerToken)
	}
	totals := &p.upstream.totals
	if !p.request.Continues {
		totals.PromptPredicted += uint64(p.PromptTokens())
		totals.PromptReported += uint64(u.PromptTokens)
	}
	if u.CachedTokens.Known {
		cached := int(u.CachedTokens.Value)
		totals.CachedPredicted += uint64(p.cached)
		totals.CachedReported += uint64(cached)
		p.upstream.engine.Cached(p.cached, min(cached, p.cached), now)
	}
}

// estimate returns what is learned of a model, nothing that is kept where there
// are too many. The caller holds the lock.
func (f *Fleet) estimate(model string) *engines.Estimate {
	e, ok := f.estimates[model]
	if !ok {
		e = new(engines.Estimate)
		if f.estimates == nil {
			f.estimates = make(map[string]*engines.Estimate)
		}
		if len(f.estimates) < maxModels {
			f.estimates[model] = e
		}
	}
	return e
}

// scaleOf returns how many tokens one estimated token of the request stands
// for, by what is learned of its model. The caller holds the lock.
func (f *Fleet) scaleOf(req *Request) float64 {
	if req.TextBytes == 0 || req.Tokens == 0 {
		return 1
	}
	learned := f.estimates[req.Model].BytesPerToken(bytesPerToken)
	text := min(float64(req.TextBytes)/bytesPerToken, float64(req.Tokens))
	scale := 1 + text*(bytesPerToken/learned-1)/float64(req.Tokens)
	if req.MaxTokens > 0 {
		scale = min(scale, float64(max(req.MaxTokens, req.Tokens))/float64(req.Tokens))
	}
	return scale
}

// scaled returns estimated tokens of the request in tokens.
func (p *Placement) scaled(tokens int) int {
	if p.scale == 1 {
		return tokens
	}
	return int(math.Round(float64(tokens) * p.scale))
}
