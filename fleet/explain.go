// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
)

// Explain returns what [Fleet.Place] would decide on the request now. Nothing is
// reserved, no session begins or moves, and nothing is recorded. Without usable
// upstreams the decision has none, and does not wait.
func (f *Fleet) Explain(req *Request, pool *Pool, usable []int, o *Options, now time.Time) Decision {
	f.mu.Lock()
	defer f.done(now)
	f.resolve(pool)
	p := &Placement{fleet: f, request: *req}
	if req.Prefills && req.Session != 0 {
		p.attend(f.sessions.Preview(req.Session, now, o.Sessions), o.PrefixIndex)
	}
	if len(usable) == 0 {
		p.scale = f.scaleOf(req)
		d := Decision{Time: now, Session: req.Session, PromptTokens: p.PromptTokens(), Attempt: attempt(req)}
		d.Model = req.Model[:min(len(req.Model), longestModel)]
		for _, name := range pool.names {
			d.Appraisals = append(d.Appraisals, Appraisal{Upstream: name, Standing: unavailable})
		}
		return d
	}
	chosen := f.weigh(p, pool, usable, o, now)
	d := p.decision(&f.scratch[chosen], now)
	d.Model = req.Model[:min(len(req.Model), longestModel)]
	d.Appraisals = f.appraisals(make([]Appraisal, 0, len(pool.names)), pool, usable, o, req)
	if u := pool.upstreams[f.positions[chosen]]; o.Queue.limits(req) && (f.queue.len > 0 || !f.hasRoom(u, d.UncachedTokens, o)) {
		d.Waits, d.Upstream = true, ""
	}
	return d
}

// decision describes the choice of a candidate, without its model and the
// appraisals. The caller holds the lock.
func (p *Placement) decision(c *picker.Candidate, now time.Time) Decision {
	return Decision{
		Time:           now,
		Session:        p.request.Session,
		PromptTokens:   p.PromptTokens(),
		UncachedTokens: c.Uncached,
		Attempt:        attempt(&p.request),
		Upstream:       c.Upstream.Name(),
		Reason:         p.reason,
		Shadow:         p.shadow,
	}
}

// attempt counts the dispatches of a request from 1.
func attempt(req *Request) int { return len(req.Tried) + 1 }
