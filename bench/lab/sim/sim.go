// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package sim runs a workload on modelled engines under a placement rule, in
// virtual time.
//
// Nothing sleeps and nothing runs beside it: one loop takes the earliest of
// what happens next, which is a client's request, the end of an engine's step,
// or an event of the scene. Equal arguments give equal results.
package sim

import (
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// Config describes one run.
type Config struct {
	// Engines is how many engines there are, all of them like Engine.
	Engines int
	Engine  vllmsim.Config

	// Warmup is how long the run goes on before anything is measured, and
	// Duration how long it is measured.
	Warmup, Duration time.Duration

	// Sigma spreads the estimates of tokens: each writer's are off by a
	// log-normal factor.
	Sigma float64

	// Seed selects the errors of the estimates.
	Seed uint64

	// Retries is how often a client's request is placed again after an engine
	// has failed it.
	Retries int

	// Patience is how long a client waits for the first output before it
	// leaves. 0 is for ever.
	Patience time.Duration

	// Hopeless ends a run as overloaded when the engines' mean prefill queue
	// is longer than that after the warm-up. 0 lets every run go on.
	Hopeless time.Duration

	// Hold is how many prefill tokens an engine is sent at once. What is placed
	// beyond that waits in the router, unless it would be alone, the shortest
	// first. One that computes for a second is overtaken only by those that come
	// within Overtake seconds after it, and so on: 0 keeps the order of arrival.
	// A Hold of 0 sends everything at once. It needs SceneNone.
	Hold     int
	Overtake float64

	// Scene is what happens to the fleet; the zero value is nothing.
	Scene Scene
}

// grace is how long the run goes on after the last measured request was sent,
// so that whatever has shown no output by then is late by any standard.
const grace = 60 * time.Second

// Run sends a workload to a fleet and measures how it is served. newRule makes
// the rule, and makes it anew when the router restarts.
func Run(c Config, arrivals workload.Arrivals, newRule func() rules.Rule) Result {
	r := &run{Config: c, arrivals: arrivals, newRule: newRule, live: make(map[*vllmsim.Request]*attempt)}
	r.measures.from, r.measures.to = c.Warmup, c.Warmup+c.Duration
	for range c.Engines {
		e := &engine{Engine: vllmsim.New(c.Engine), usable: true}
		r.engines = append(r.engines, e)
	}
	r.look()
	r.route()
	c.Scene.stage(r)
	r.at(c.Warmup, r.startMeasuring)
	r.nextArrival()
	end := r.measures.to + grace
	for r.now <= end && !r.measures.overloaded && r.advance() {
	}
	return r.result()
}

// run is the state of one run.
type run struct {
	Config
	now      time.Duration
	queue    queue
	engines  []*engine
	arrivals workload.Arrivals
	newRule  func() rules.Rule
	rule     rules.Rule
	view     rules.View
	live     map[*vllmsim.Request]*attempt
	asking   *attempt // what the view answers about
	measures measures
}

// route makes the rule.
func (r *run) route() {
	r.rule = r.newRule()
	if s, ok := r.rule.(rules.Scheduled); ok {
		s.Schedule(r.at)
	}
}

// at lets do happen at a time that is not in the past.
func (r *run) at(at time.Duration, do func()) { r.queue.push(at, do) }

// advance lets the next thing happen. It reports false when nothing is left.
func (r *run) advance() bool {
	first, at := (*engine)(nil), never
	for _, e := range r.engines {
		if e.busy && e.end < at {
			first, at = e, e.end
		}
	}
	if next := r.queue.next(); next <= at {
		if next == never {
			return false
		}
		r.now = next
		r.queue.pop()()
		return true
	}
	r.now = at
	r.finishStep(first)
	return true
}

// nextArrival waits for the next client.
func (r *run) nextArrival() {
	at, script, ok := r.arrivals()
	if !ok {
		return
	}
	r.at(at, func() {
		r.goOn(&client{script: script, engine: none})
		r.nextArrival()
	})
}
