// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math"
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// Decision is what was decided on one request with a prompt, or would be, and
// from what.
type Decision struct {
	Time time.Time

	// Session is the request's session, 0 for none, and Model what it asks for,
	// of a long name the first 128 bytes.
	Session sessions.Key
	Model   string

	// PromptTokens is the estimate of the whole prompt, and UncachedTokens of
	// what the chosen upstream has to compute of it.
	PromptTokens, UncachedTokens int

	// Attempt counts the dispatches of the request from 1.
	Attempt int

	// Upstream is the chosen one, and Reason why. Where the request has to wait,
	// Waits is true and there is no upstream.
	Upstream string
	Reason   Reason
	Waits    bool

	// Shadow is what would have been chosen where another policy has, see
	// [Fleet.PlaceAt].
	Shadow Choice

	// FirstOutput is the time to the first output, 0 while there was none. Ended
	// says that the request has ended, and Cause how.
	FirstOutput time.Duration
	Ended       bool
	Cause       Cause

	// Appraisals are the upstreams in the order of the policy's.
	Appraisals []Appraisal
}

// Appraisal is what an upstream was worth to a decision.
type Appraisal struct {
	Upstream string

	// Standing is what speaks against the upstream for the request: one of
	// [States], or `model_not_listed`, `tried` where the request has failed there
	// before, and `unavailable` where the proxy does not offer it. The best ones
	// are compared, whatever that is.
	Standing string

	// Candidate says that the upstream was compared with others. Those that are
	// no candidates have nothing but their standing.
	Candidate bool

	// NoRoom says that the upstream is at the limit of the queue.
	NoRoom bool

	// Requests and Waiting are the requests in flight there and those without
	// output, and Others those from elsewhere.
	Requests, Waiting int
	Others            float64

	// Uncached and Cached are the tokens of the prompt that it has to compute,
	// and that it is believed to have.
	Uncached, Cached int

	// Age is how long ago the block that it would evict next was used, or
	// [picker.NeverEvicts].
	Age time.Duration

	// Speed is how fast it prefills relative to the others.
	Speed float64

	// Cost is the sum of the terms, in tokens. At a session's home that is at its
	// limit it has what waits for that home too.
	Terms picker.Terms
	Cost  float64
}

// appraisals appends what each upstream of a pool was worth to the last decision,
// before that is carried out. The caller holds the lock.
func (f *Fleet) appraisals(list []Appraisal, pool *Pool, usable []int, o *Options, req *Request) []Appraisal {
	first, limited := len(list), o.Queue.limits(req)
	for _, name := range pool.names {
		list = append(list, Appraisal{Upstream: name, Standing: unavailable})
	}
	for i, at := range usable {
		list[first+at].Standing = f.standings[i].String()
	}
	for i, at := range f.positions {
		c, a := &f.scratch[i], &list[first+at]
		a.Candidate = true
		a.NoRoom = limited && !f.hasRoom(pool.upstreams[at], c.Uncached, o)
		a.Requests, a.Waiting, a.Others = c.Upstream.Requests(), c.Upstream.Waiting(), c.Others
		a.Uncached, a.Cached = c.Uncached, c.Cached
		a.Age, a.Speed = c.Age, c.Speed
		a.Terms, a.Cost = c.Terms, c.Cost
		if math.IsInf(c.Cost, 1) {
			a.Cost = c.Terms.Sum()
		}
	}
	return list
}
