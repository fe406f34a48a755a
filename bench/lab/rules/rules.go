// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package rules holds the placement rules that the laboratory compares, each
// in its own file: published ones, the shipped one and an all-knowing one.
//
// A rule sees what a router sees. It learns of its own placements, of first
// outputs and of ends, and it knows estimates of tokens, not tokens. Only the
// all-knowing rule asks the engines. Rules that use prefix matches all keep the
// index of package prefixes, with the same capacity.
package rules

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/caddy-llm/loadaware/fleet"
)

// Rule places requests. It is not safe for concurrent use.
type Rule interface {
	// Place chooses one of the usable engines.
	Place(r *Request, now time.Duration, v View) int

	// FirstOutput tells that the client of a placed request sees output. It
	// is not called for silent requests.
	FirstOutput(r *Request, now time.Duration)

	// End tells that a placed request is over. It is called once for each
	// placement.
	End(r *Request, now time.Duration, o Outcome)
}

// Watcher is a rule that sees what comes of its requests.
type Watcher interface {
	// Progress tells that a placed request has shown more output. It is not
	// called for silent requests.
	Progress(r *Request, now time.Duration)
}

// Keeper is a rule that survives a restart of its router in part.
type Keeper interface {
	Rule

	// Keep returns what the router has stored by now, and Take gives that to
	// the rule of the next router.
	Keep(now time.Duration) []byte
	Take(kept []byte, now time.Duration)
}

// Scheduled is a rule that does something at times of its own.
type Scheduled interface {
	// Schedule gives the rule what lets do happen at a time that is not in the
	// past. It is called once, before anything else.
	Schedule(at func(at time.Duration, do func()))
}

// Outcome says how a placement ended.
type Outcome int

const (
	// Done is a complete answer.
	Done Outcome = iota
	// Failed is an error of the engine.
	Failed
	// Left is a client that did not wait for the end.
	Left
)

// Request is what a router knows of a request, and what the rule that placed
// it remembers.
type Request struct {
	// Session names the conversation, 0 for none.
	Session uint64

	// Tokens is the estimated length of the prompt, and Blocks names its whole
	// blocks of [fleet.BlockTokens] estimated tokens.
	Tokens int
	Blocks []uint64

	// Silent says that the answer shows nothing before it is complete.
	Silent bool

	// Tried are the engines on which the request has failed before.
	Tried []int

	entry     entry           // of rules that keep books
	placement fleet.Placement // of the shipped rule
	router    *router         // that placed it last, where there are several
}

// View is what a rule may look at besides its own books.
type View struct {
	// Usable are the engines that take requests, in ascending order. It is
	// never empty.
	Usable []int

	// Outstanding is how many prefill tokens an engine still has to compute,
	// and Uncached how many it would compute of the request at hand. Both are
	// the truth: only an all-knowing rule may ask.
	Outstanding, Uncached func(engine int) int
}

// Config is what rules are made from.
type Config struct {
	// Engines is how many engines there are, those included that take no
	// requests yet.
	Engines int

	// IndexTokens is how many tokens of prefix cache are indexed for each
	// engine.
	IndexTokens int

	// PrefillRate is how many tokens an engine computes per second. Rules that
	// reckon in time take it as known.
	PrefillRate float64

	// Options are those of the shipped rule.
	Options fleet.Options

	// Routers is how many routers with the shipped rule there are, and Shared
	// what they share. 0 is one.
	Routers int
	Shared  Shared

	// Random is where chance comes from.
	Random *rand.Rand
}

// Prefill is how many prefill tokens the rule that placed r counts for it, 0
// from the first output on and for rules that count none.
func (r *Request) Prefill() int { return max(r.entry.prefill, r.placement.UncachedTokens()) }

func (r *Request) tried(engine int) bool { return slices.Contains(r.Tried, engine) }
