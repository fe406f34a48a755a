// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"time"
)

// Blame says how far an upstream answers for a failed dispatch.
type Blame uint8

const (
	// BlameNone is for what is wrong with the request or its client.
	BlameNone Blame = iota
	// BlameFailure is for no answer, or one that another upstream might have
	// made better.
	BlameFailure
	// BlameDenied is for an upstream that does not know the model or the
	// client: it is a failure where another one has served the model lately,
	// and nobody's fault where none has.
	BlameDenied
	// BlameFull is for an upstream that has no room for the request. It is
	// full until its next report, or as long as it says, see [Placement.Refused].
	BlameFull
)

// servedFor is how long a model that an upstream has served counts as served.
const servedFor = time.Minute

// service is where and when a model was last served.
type service struct {
	upstream *upstream
	at       time.Time
}

// noteService notes that u has served the model. Of too many models those that
// count no more make room. The caller holds the lock.
func (f *Fleet) noteService(model string, u *upstream, now time.Time) {
	if f.services == nil {
		f.services = make(map[string]service)
	}
	_, known := f.services[model]
	if !known && len(f.services) >= maxModels {
		maps.DeleteFunc(f.services, func(_ string, s service) bool { return now.Sub(s.at) > servedFor })
	}
	if known || len(f.services) < maxModels {
		f.services[model] = service{u, now}
	}
}

// blame notes a failed dispatch to p's upstream. One without a prompt keeps its
// load and says nothing of the engine, whose other answers are not counted
// either. The caller holds the lock.
func (f *Fleet) blame(p *Placement, b Blame, now time.Time) {
	u := p.upstream
	switch b {
	case BlameNone:
		return
	case BlameDenied:
		last, ok := f.services[p.request.Model]
		if !ok || last.upstream == u || now.Sub(last.at) > servedFor {
			return
		}
	case BlameFull:
		f.ledger.Failed(u.counters, now)
		if p.request.Prefills {
			u.health.refuse(0, now)
		}
		return
	case BlameFailure:
	}
	f.ledger.Failed(u.counters, now)
	if p.request.Prefills {
		good, bad := f.outcomes(u, now)
		u.health.fail(good, bad, p.reservation.Started(), now)
	}
}

// outcomes adds up what dispatches to the other upstreams came to lately. The
// caller holds the lock.
func (f *Fleet) outcomes(except *upstream, now time.Time) (good, bad float64) {
	for _, u := range f.upstreams {
		if u != except {
			g, b := u.health.record.at(now)
			good, bad = good+g, bad+b
		}
	}
	return good, bad
}
