// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"

	"github.com/caddy-llm/loadaware/engines"
)

// Observe takes in what the engine behind the named upstream reports, to be
// believed for the time valid. An upstream that the fleet does not know is
// passed over.
func (f *Fleet) Observe(name string, r engines.Report, now time.Time, valid time.Duration) {
	f.mu.Lock()
	defer f.done(now)
	u, ok := f.upstreams[name]
	if !ok {
		return
	}
	u.health.reported()
	u.peersReported = u.counters.TakePeersPeak()
	if u.engine.Observe(r, u.counters.TakePeak()+u.peersReported, now, valid) {
		u.index.Clear()
	}
}

// ScrapeFailed counts a report of the named upstream that could not be had.
func (f *Fleet) ScrapeFailed(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if u, ok := f.upstreams[name]; ok {
		u.totals.ScrapeErrors++
	}
}

// Probed takes in that the named upstream was asked for something that costs it
// nothing, and whether it has answered at all. An upstream that has failed is
// tried with a request again once it has.
func (f *Fleet) Probed(name string, answered bool, now time.Time) {
	f.mu.Lock()
	defer f.done(now)
	if u, ok := f.upstreams[name]; ok {
		u.health.probe(answered, now)
	}
}

// Watch notes that somebody is going to ask the named upstream for something that
// costs it nothing, as soon as it has failed, and reports whether that is now, see
// [Fleet.Probed]. Whoever watches calls it at least every few seconds: while he
// does, no request tries an upstream that has failed before it has answered.
func (f *Fleet) Watch(name string, now time.Time) (asks bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u, ok := f.upstreams[name]
	return ok && u.health.watch(now)
}

// scaleWeight is how much one request moves an upstream's average scale, and
// resizeFrom by which part an index has to be wrong to be resized.
const (
	scaleWeight = 0.05
	resizeFrom  = 16
)

// resize gives the upstream's index room for as many blocks as its prefix cache
// holds. The caller holds the lock.
func (u *upstream) resize(scale float64, o *Options) {
	u.scale += scaleWeight * (scale - u.scale)
	u.fit(o.KVTokens)
}

// indexed is the part of a prompt that the index has room for. The caller holds
// the lock.
func (u *upstream) indexed(chain []uint64) []uint64 {
	return chain[:min(len(chain), u.index.Capacity())]
}

// fit gives the index room for so many tokens, or where that is 0 for what the
// engine has. The caller holds the lock.
func (u *upstream) fit(tokens int) {
	if tokens == 0 {
		tokens = u.engine.KVTokens()
	}
	if tokens == 0 {
		tokens = DefaultKVTokens
	}
	blocks := int(min(float64(tokens)/(BlockTokens*u.scale), math.MaxInt32))
	if off := blocks - u.index.Capacity(); off > blocks/resizeFrom || -off > blocks/resizeFrom {
		u.index.Resize(blocks)
	}
}
