// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-llm/loadaware/engines"
	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/prefixes"
	"github.com/caddy-llm/loadaware/sessions"
)

// departed is how long the state of an upstream is kept that no configuration
// lists, no placement has seen and nothing is reserved on.
const departed = 10 * time.Minute

// sweepEvery is how often departed upstreams are looked for.
const sweepEvery = time.Minute

// Fleet is the state of one fleet. All methods are safe for concurrent use.
type Fleet struct {
	mu sync.Mutex

	// guarded by mu
	ledger    *picker.Ledger
	upstreams map[string]*upstream
	sessions  sessions.Table
	responses responses
	lastOwner prefixes.Owner
	swept     time.Time
	scratch   []picker.Candidate
	standings []standing
	positions []int
	speeds    []float64
	assigned  []*Load

	// generation counts removals from upstreams: a pool resolved before the
	// last one may point to what is gone
	generation uint64

	// estimates are what was learned of the models' tokens, and services where
	// they were last served
	estimates map[string]*engines.Estimate
	services  map[string]service

	// queue is who waits for room
	queue queue

	// trail is what was decided last, and shadow how other policies have chosen
	trail  trail
	shadow ShadowTotals

	// gathered is what is to be told to other routers, and peers what is known
	// of them
	gathered gathered
	peers    peers

	// served adds up the tokens of the silent reservations that were let go in
	// the step under way
	served int

	// what counts a reservation that another one's first output or the time
	// let go; kept here so that no placement allocates a closure
	onInferred, onExpired func(*picker.Reservation)
}

// upstream is everything the fleet knows of one upstream.
type upstream struct {
	counters *picker.Upstream
	index    prefixes.Index
	totals   Totals

	// engine is what the upstream reports of itself, meter how fast it was
	// seen to prefill, and models what it lists
	engine engines.Engine
	meter  engines.Meter
	models modelList

	// health is how dispatches have ended. streams is how many responses are to
	// come or under way that show their progress, streaming since when there
	// was any, and lastStream when the last of them was placed
	health                health
	streams               int
	streaming, lastStream time.Time

	// not guarded by the lock: progress is when something came of a response
	// last, in nanoseconds of Unix time, and blocked how many streams wait for
	// their clients to read
	progress atomic.Int64
	blocked  atomic.Int32

	// scale is how many tokens a block's estimate of one token stands for, on
	// average of what was recorded lately
	scale float64

	// prompts is how many requests with a prompt are in flight. awaited is how
	// many requests wait for this upstream though others have room, and with how
	// many tokens; claimed is the last walk through the line in which a request
	// waited that goes before those behind it
	prompts, awaited, awaitedTokens int
	claimed                         uint64

	// told is what other routers were told last of what is held here, and
	// peersReported the most requests of theirs that the last report may have
	told          Load
	peersReported int

	// drained says that an operator wants nothing new placed here
	drained bool

	// listed is how many loaded configurations name the upstream, and seen
	// when a placement last could have chosen it; unlisted says that the last
	// configuration has gone since
	listed   int
	unlisted bool
	seen     time.Time
}

// New returns an empty fleet. random orders upstreams that were never chosen,
// see [picker.NewLedger].
func New(random func() uint64) *Fleet {
	f := &Fleet{
		ledger:    picker.NewLedger(random),
		upstreams: make(map[string]*upstream),
		queue:     queue{walk: 1},
	}
	f.onInferred = f.inferred
	f.onExpired = func(r *picker.Reservation) { f.released(r, CauseExpired) }
	return f
}

// List says that a configuration names these upstreams: their series are
// exported from now on. Each List needs one [Fleet.Unlist].
func (f *Fleet) List(names []string) { f.list(names, 1) }

// Unlist takes one [Fleet.List] of these upstreams back.
func (f *Fleet) Unlist(names []string) { f.list(names, -1) }

func (f *Fleet) list(names []string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		u := f.upstream(name)
		u.listed += by
		u.unlisted = u.listed <= 0
	}
}

// upstream returns what is known of the named upstream and adds it if missing.
// The caller holds the lock.
func (f *Fleet) upstream(name string) *upstream {
	u, ok := f.upstreams[name]
	if !ok {
		u = &upstream{counters: f.ledger.NewUpstream(name), scale: 1}
		f.upstreams[name] = u
	}
	return u
}

// sweep forgets upstreams that have departed. The caller holds the lock.
func (f *Fleet) sweep(now time.Time) {
	if now.Sub(f.swept) < sweepEvery {
		return
	}
	f.swept = now
	for name, u := range f.upstreams {
		if u.listed <= 0 && u.counters.Idle() && u.counters.Peers() == (picker.Load{}) && now.Sub(u.seen) > departed {
			delete(f.upstreams, name)
			f.generation++
		}
	}
}

// released counts the end of a reservation's prefill tokens. The caller holds
// the lock.
func (f *Fleet) released(r *picker.Reservation, c Cause) {
	if u, ok := f.upstreams[r.Upstream().Name()]; ok {
		u.totals.Releases[c]++
	}
}

// inferred counts the end of a silent reservation's prefill tokens, which the
// engine must have computed. The caller holds the lock.
func (f *Fleet) inferred(r *picker.Reservation) {
	f.released(r, CauseInferred)
	f.served += r.Tokens()
}

// Pool is a list of upstreams by name. A policy keeps the pool of its last
// request, so that a placement looks no names up while the list stays the
// same. It must not be used by two fleets.
type Pool struct {
	names      []string
	upstreams  []*upstream
	generation uint64

	// speeds are the upstreams' relative to one another, as of speedsAt
	speeds   []float64
	speedsAt time.Time
}

// NewPool returns the pool of the named upstreams, which it keeps.
func NewPool(names []string) *Pool { return &Pool{names: names} }

// Names are the upstreams of the pool; the slice must not be changed.
func (p *Pool) Names() []string { return p.names }

// resolve finds the fleet's state of every upstream in p. The caller holds the
// lock.
func (f *Fleet) resolve(p *Pool) {
	if p.upstreams != nil && p.generation == f.generation {
		return
	}
	f.trail.fit(len(p.names))
	upstreams := make([]*upstream, len(p.names))
	for i, name := range p.names {
		upstreams[i] = f.upstream(name)
	}
	p.upstreams, p.generation = upstreams, f.generation
	p.speedsAt = time.Time{}
}
