// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "sync/atomic"

// ranks are the engines behind one address, in order of their numbers. There is one at least.
type ranks struct {
	drivers []*driver
	turns   atomic.Uint64 // taken so far
}

// newRanks starts the drivers that close ends.
func newRanks(cfg ServerConfig) *ranks {
	r := &ranks{}
	for i := range cfg.DataParallel {
		engine := cfg.Engine
		engine.Seed += uint64(i) // or they would jitter alike
		r.drivers = append(r.drivers, newDriver(engine, cfg.Speed))
	}
	return r
}

// next returns the engine whose turn it is.
func (r *ranks) next() *driver {
	turn := r.turns.Add(1) - 1
	return r.drivers[turn%uint64(len(r.drivers))]
}

// with runs f for each engine in turn.
func (r *ranks) with(f func(*Engine)) {
	for _, d := range r.drivers {
		d.with(f)
	}
}

// pause stops all loops after their step in progress, or lets them go on.
func (r *ranks) pause(paused bool) {
	for _, d := range r.drivers {
		d.pause(paused)
	}
}

// restart fails every call, empties the engines and begins with the first again.
func (r *ranks) restart() {
	for _, d := range r.drivers {
		d.restart()
	}
	r.turns.Store(0)
}

// close ends the goroutines and fails every call. It may be called more than once.
func (r *ranks) close() {
	for _, d := range r.drivers {
		d.close()
	}
}

// stats returns the numbers of each engine as of the end of its last step.
func (r *ranks) stats() []Stats {
	list := make([]Stats, len(r.drivers))
	for i, d := range r.drivers {
		list[i] = d.stats()
	}
	return list
}
