// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

// engine is a modelled engine and what the scene does to it.
type engine struct {
	*vllmsim.Engine

	// usable engines are in the router's list. Failing ones answer with an
	// error in a millisecond, hung ones begin no step.
	usable, failing, hung bool

	// busy says that a step is under way, which ends at end with result.
	busy   bool
	end    time.Duration
	result vllmsim.Result

	// line is what the router holds for the engine, and ahead how many tokens
	// of what it has sent have yet to show output
	line  []*attempt
	ahead int
}

// look makes the view of the engines as they are now.
func (r *run) look() {
	r.view = rules.View{
		Outstanding: func(i int) int { return r.engines[i].OutstandingPrefill() },
		Uncached: func(i int) int {
			q := &r.asking.request
			return max(q.PromptTokens-r.engines[i].CachedPrefix(q.Blocks), 1)
		},
	}
	for i, e := range r.engines {
		if e.usable {
			r.view.Usable = append(r.view.Usable, i)
		}
	}
}

// startStep begins a step if the engine can.
func (r *run) startStep(e *engine) {
	if e.busy || e.hung || e.Idle() {
		return
	}
	e.result = e.Step(r.now)
	if e.result.Duration > 0 {
		e.busy, e.end = true, r.now+e.result.Duration
	}
}

// finishStep shows what a step did and begins the next one.
func (r *run) finishStep(e *engine) {
	e.busy = false
	for _, q := range e.result.Tokens {
		if a := r.live[q]; a != nil {
			r.progress(a)
		}
	}
	for _, q := range e.result.First {
		if a := r.live[q]; a != nil {
			r.show(a)
		}
	}
	for _, q := range e.result.Finished {
		if a := r.live[q]; a != nil {
			r.answered(a)
		}
	}
	r.startStep(e)
}

// queued is the engines' mean prefill queue.
func (r *run) queued() time.Duration {
	tokens := 0
	for _, e := range r.engines {
		tokens += e.OutstandingPrefill()
		for _, a := range e.line {
			tokens += a.own
		}
	}
	rate := r.engines[0].Engine.Config().PrefillRate * float64(len(r.engines))
	return time.Duration(float64(tokens) / rate * float64(time.Second))
}
