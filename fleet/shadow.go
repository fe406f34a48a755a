// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/picker"
)

// Choice is what would have been chosen for a request that another policy has
// placed.
type Choice struct {
	// Upstream is the one that would have been chosen, "" where nothing was
	// compared, and Reason why.
	Upstream string
	Reason   Reason

	// UncachedTokens is what it would have had to compute of the prompt.
	UncachedTokens int
}

// ShadowTotals compare the choices of other policies with those that would have
// been made. They only grow.
type ShadowTotals struct {
	// Same counts the requests that would have gone to the same upstream, and
	// Other those that would have gone to another one.
	Same, Other uint64

	// Prefill is in uncached tokens. Cost is in tokens of the cost; those of which
	// the other policy has chosen no candidate have none.
	Prefill, Cost Differences
}

// Differences add up what other choices would have saved, and what they would
// have lost.
type Differences struct{ Saved, Lost float64 }

func (d *Differences) add(saved float64) {
	if saved >= 0 {
		d.Saved += saved
	} else {
		d.Lost -= saved
	}
}

// PlaceAt places the request at a position of pool, which another policy has
// chosen, with everything that [Fleet.Place] would do there. It weighs the
// upstreams that usable names all the same, and counts and remembers what would
// have been chosen. The session's home, the prefix index and the load are those
// that the other policy has made: what is compared is one choice at a time.
//
// Nobody waits: o must not limit what upstreams hold. PlaceAt allocates as little
// as Place does.
func (f *Fleet) PlaceAt(p *Placement, at int, req *Request, pool *Pool, usable []int, o *Options, now time.Time) {
	f.mu.Lock()
	defer f.done(now)
	f.resolve(pool)
	u := pool.upstreams[at]
	u.offered(now)
	f.begin(p, req, pool, usable, o, now)
	var c picker.Candidate
	if len(usable) > 0 {
		c = f.compare(p, at, pool, usable, o, now)
	} else {
		p.scale = f.scaleOf(req)
		f.measureSpeeds(pool, now)
		c = f.candidate(p, pool, at, o, now)
	}
	p.reason = ReasonShadow
	if req.Prefills {
		f.remember(p, &c, pool, usable, o, now)
	}
	f.commit(p, u, &c, o, now)
}

// compare notes what would be chosen for p in place of the upstream at a position,
// and returns what that one is to the request. The caller holds the lock.
func (f *Fleet) compare(p *Placement, at int, pool *Pool, usable []int, o *Options, now time.Time) picker.Candidate {
	ours := &f.scratch[f.weigh(p, pool, usable, o, now)]
	var theirs picker.Candidate
	compared := slices.Index(f.positions, at)
	if compared >= 0 {
		theirs = f.scratch[compared]
	} else {
		theirs = f.candidate(p, pool, at, o, now)
	}
	if !p.request.Prefills {
		return theirs
	}
	p.shadow = Choice{Upstream: ours.Upstream.Name(), Reason: p.reason, UncachedTokens: ours.Uncached}
	if ours.Upstream == theirs.Upstream {
		f.shadow.Same++
	} else {
		f.shadow.Other++
	}
	f.shadow.Prefill.add(float64(theirs.Uncached - ours.Uncached))
	if compared >= 0 {
		f.shadow.Cost.add(theirs.Cost - ours.Cost)
	}
	return theirs
}
