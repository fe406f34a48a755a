// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"time"
)

// standing is what speaks against an upstream for a request. Upstreams of the
// lowest standing are the candidates; the others are chosen only when there is
// none, so nothing is ever shut out for good. A full one comes right after the
// one that it would be if it were not.
type standing uint8

const (
	// fit upstreams have nothing against them.
	fit standing = iota
	// full ones have no room in their KV cache. A session stays at a full home.
	full
	// unlisted ones do not list the model, and the policy prefers those that do.
	unlisted
	// unlistedFull ones do neither list it nor have room.
	unlistedFull
	// cooling ones have failed more than others, and were not seen to have
	// recovered.
	cooling
	// suspect ones have shown nothing on any stream while others answer.
	suspect
	// drained ones are to get nothing new.
	drained
	// asleep ones answer when somebody wakes them.
	asleep
	// tried ones have failed the request before.
	tried

	// foreign comes on top for those that do not list the model where the
	// policy asks for that: they come last, and where there are no others the
	// rest still holds among them.
	foreign standing = 1 << 4
)

// full reports that the upstream stands as it does because it is full.
func (s standing) full() bool { return s == full || s == unlistedFull || s == full|foreign }

// stateNames are what the standings are called that do not depend on a request.
var stateNames = [...]string{
	fit: "available", full: "full", cooling: "cooling_down", suspect: "suspect", drained: "drained", asleep: "asleep",
}

// unavailable is how an upstream stands that the proxy does not offer.
const unavailable = "unavailable"

// String names what speaks against an upstream for a request.
func (s standing) String() string {
	switch {
	case s == tried || s == tried|foreign:
		return "tried"
	case s >= foreign, s == unlisted, s == unlistedFull:
		return "model_not_listed"
	}
	return stateNames[s]
}

// States are the names of the states that an upstream may be in, see
// [UpstreamView]. The set is closed; it is the `state` label of the metrics.
func States() []string {
	var states []string
	for _, name := range stateNames {
		if name != "" {
			states = append(states, name)
		}
	}
	return states
}

// state is the standing of the upstream for any request. othersAnswer says that
// another upstream is not silent.
func (u *upstream) state(othersAnswer bool, now time.Time) standing {
	switch {
	case u.drained:
		return drained
	case u.engine.Asleep(now):
		return asleep
	case othersAnswer && u.silent(now):
		return suspect
	case u.health.cooling(now):
		return cooling
	case u.engine.Full(now), u.health.refuses(now):
		return full
	}
	return fit
}

// standing is the standing of an upstream in state s for a request.
func (u *upstream) standing(s standing, req *Request, o *Options, now time.Time) standing {
	if slices.Contains(req.Tried, u.counters.Name()) {
		s = tried
	}
	if req.Model != "" && o.Models != ModelsOff && !u.models.serves(req.Model, now) {
		switch {
		case o.Models == ModelsList:
			return s | foreign
		case s == full:
			return unlistedFull
		}
		return max(s, unlisted)
	}
	return s
}

// stand sets f.positions, a slice that is good until the next placement, to the
// candidates: the upstream that keeps the response which the request refers to,
// and kept is true; else those that stand best, and home where that it is full is
// all that makes it worse. The caller holds the lock.
func (f *Fleet) stand(req *Request, home string, pool *Pool, usable []int, o *Options, now time.Time) (kept bool) {
	best := f.judge(req, pool, usable, o, now)
	f.positions = f.positions[:0]
	if keeper := f.keeper(req, pool, usable); keeper >= 0 {
		f.positions = append(f.positions, keeper)
		return true
	}
	for i, s := range f.standings {
		if s == best || s == best+1 && s.full() && pool.names[usable[i]] == home {
			f.positions = append(f.positions, usable[i])
		}
	}
	return false
}

// judge sets the standing of every usable upstream for a request, and returns
// the best. The caller holds the lock.
func (f *Fleet) judge(req *Request, pool *Pool, usable []int, o *Options, now time.Time) (best standing) {
	othersAnswer := silent(pool, usable, now) < len(usable)
	failing, able := 0, 0
	best = tried | foreign
	f.standings = f.standings[:0]
	for _, at := range usable {
		u := pool.upstreams[at]
		s := u.standing(u.state(othersAnswer, now), req, o, now)
		f.standings = append(f.standings, s)
		best = min(best, s)
		if s <= suspect {
			able++
		}
		if s == cooling {
			failing++
		}
	}
	if 2*failing <= able {
		return best
	}
	// what most of them suffer from is none of their faults
	for i, s := range f.standings {
		if s == cooling {
			f.standings[i] = fit
		}
	}
	return fit
}

// silent is how many of the usable upstreams are silent. The caller holds the
// lock.
func silent(pool *Pool, usable []int, now time.Time) (n int) {
	for _, at := range usable {
		if pool.upstreams[at].silent(now) {
			n++
		}
	}
	return n
}

// doubt makes those cool down that are suspect. It is the step of a placement and
// of nobody who only looks. The caller holds the lock.
func (f *Fleet) doubt(pool *Pool, usable []int, now time.Time) {
	if n := silent(pool, usable, now); n == 0 || n == len(usable) {
		return
	}
	for _, at := range usable {
		if u := pool.upstreams[at]; u.state(true, now) == suspect {
			u.doubt(now)
		}
	}
}

// Drain keeps new requests away from the named upstream, or ends that. What is
// in flight there goes on. It reports false where the fleet does not know the
// upstream. It holds until the upstream has departed.
func (f *Fleet) Drain(name string, on bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.upstreams[name]
	if ok {
		u.drained = on
		f.glance()
	}
	return ok
}
