// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"time"
)

const (
	// requestTokens is what one request in flight weighs, in tokens.
	requestTokens = 16_384
	// moveGap is how many requests' worth a session's home may carry more than
	// the best engine.
	moveGap = 4
)

// stickyTokens places a request where
//
//	16,384 x requests in flight + prefill tokens
//
// is least, and a session where it was last until that is four requests over
// the least. A session that stays is charged what its prompt has grown by, any
// other request its whole prompt. It is the rule of the LLMKube router.
type stickyTokens struct {
	books
	config Config
	homes  map[uint64]home
}

// home is where a session was last, and how long its prompt was there.
type home struct{ engine, tokens int }

func newStickyTokens(c Config) Rule {
	return &stickyTokens{books: newBooks(c), config: c, homes: make(map[uint64]home)}
}

func (p *stickyTokens) Place(r *Request, _ time.Duration, v View) int {
	engine, prefill := least(p.config, v.Usable, p.score), r.Tokens
	if h, ok := p.homes[r.Session]; ok && slices.Contains(v.Usable, h.engine) &&
		p.score(h.engine)-p.score(engine) <= moveGap*requestTokens {
		engine = h.engine
		if r.Tokens >= h.tokens {
			prefill = r.Tokens - h.tokens
		}
	}
	if r.Session != 0 {
		p.homes[r.Session] = home{engine: engine, tokens: r.Tokens}
	}
	return p.enter(r, engine, prefill)
}

func (p *stickyTokens) score(engine int) float64 {
	a := &p.engines[engine]
	return float64(requestTokens*a.inFlight + a.prefill)
}
