// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"time"

	"github.com/caddy-llm/loadaware/bench/lab/rules"
	"github.com/caddy-llm/loadaware/bench/lab/workload"
	"github.com/caddy-llm/loadaware/internal/vllmsim"
)

const none = -1

// client follows a script.
type client struct {
	script *workload.Script
	step   int

	// waits counts what the next step still waits for: the client's thinking
	// and the scripts beside it
	waits int

	// parent waits for this client's end, if it is not nil
	parent *client

	// engine served the previous request
	engine int
}

// attempt is one request from when it is sent to its end, through all of its
// placements.
type attempt struct {
	client  *client
	sent    time.Duration
	request vllmsim.Request
	seen    rules.Request // what the router sees of it
	rule    rules.Rule    // that placed it last
	engine  int

	// own are the prefill tokens that a held request counts for, and due the
	// moment that gives it its place in line
	own int
	due time.Duration
}

// goOn starts what comes before the client's next step, or ends its script.
func (r *run) goOn(c *client) {
	if c.step == len(c.script.Steps) {
		if c.parent != nil {
			r.ready(c.parent)
		}
		return
	}
	step := &c.script.Steps[c.step]
	c.waits = 1 + len(step.Beside)
	r.at(r.now+step.Think, func() { r.ready(c) })
	for _, script := range step.Beside {
		r.goOn(&client{script: script, parent: c, engine: none})
	}
}

// ready takes away one of the things the client waits for.
func (r *run) ready(c *client) {
	if c.waits--; c.waits == 0 {
		r.send(c)
	}
}

// send sends the client's next request.
func (r *run) send(c *client) {
	q := c.script.Request(c.step)
	c.step++
	a := &attempt{client: c, sent: r.now, request: vllmsim.Request{
		PromptTokens: q.Tokens, Blocks: q.Blocks, OutputBlocks: q.Answer, OutputTokens: q.Output,
	}}
	a.seen = r.estimate(&q)
	if r.Hopeless > 0 && r.now > r.Warmup && r.queued() > r.Hopeless {
		r.measures.overloaded = true
	}
	r.measures.sent(r.now)
	r.place(a)
	if r.Patience > 0 {
		r.at(r.now+r.Patience, func() { r.loseInterest(a) })
	}
}

// place lets the rule choose an engine and sends the request there.
func (r *run) place(a *attempt) {
	r.asking = a
	a.rule, a.engine = r.rule, r.rule.Place(&a.seen, r.now, r.view)
	e := r.engines[a.engine]
	if e.failing {
		r.at(r.now+time.Millisecond, func() { r.failed(a) })
		return
	}
	r.dispatch(a)
}

// submit gives the request to its engine.
func (r *run) submit(a *attempt) {
	e := r.engines[a.engine]
	if err := e.Submit(r.now, &a.request); err != nil {
		// the engine refuses what exceeds its cache, as any other would
		delete(r.live, &a.request)
		a.rule.End(&a.seen, r.now, rules.Left)
		r.prefilled(a)
		r.lost(a)
		return
	}
	r.startStep(e)
}

// failed places a request again that an engine has answered with an error, or
// gives it up.
func (r *run) failed(a *attempt) {
	a.rule.End(&a.seen, r.now, rules.Failed)
	if len(a.seen.Tried) == r.Retries {
		r.lost(a)
		return
	}
	a.seen.Tried = append(a.seen.Tried, a.engine)
	r.place(a)
}

// show tells the rule of the first output.
func (r *run) show(a *attempt) {
	r.measures.shown(a, r.now)
	if !a.seen.Silent {
		a.rule.FirstOutput(&a.seen, r.now)
	}
	r.prefilled(a)
	if c := a.client; c.parent == nil {
		if c.engine != none && a.seen.Session != 0 {
			r.measures.turn(r.now, c.engine != a.engine)
		}
		c.engine = a.engine
	}
}

// progress tells the rule of more output.
func (r *run) progress(a *attempt) {
	if w, ok := a.rule.(rules.Watcher); ok && !a.seen.Silent {
		w.Progress(&a.seen, r.now)
	}
}

// answered ends a request that has its whole answer.
func (r *run) answered(a *attempt) {
	delete(r.live, &a.request)
	r.measures.answered(a)
	a.rule.End(&a.seen, r.now, rules.Done)
	r.goOn(a.client)
}

// loseInterest ends a request that has shown nothing for too long.
func (r *run) loseInterest(a *attempt) {
	if r.live[&a.request] == nil || a.request.State == vllmsim.Finished || a.request.FirstOutput > 0 {
		return
	}
	delete(r.live, &a.request)
	r.engines[a.engine].Abort(&a.request)
	a.rule.End(&a.seen, r.now, rules.Left)
	r.lost(a)
}

// lost ends a request without an answer. The client goes on all the same.
func (r *run) lost(a *attempt) {
	r.measures.lost(a)
	r.goOn(a.client)
}
