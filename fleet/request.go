// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// BlockTokens is how many tokens one block of a prompt stands for: blocks are
// 1 KiB of text, at four bytes to the token.
const BlockTokens = 256

// DefaultKVTokens is how many tokens of an upstream's prefix cache are indexed
// when nobody says how many it holds: the order of a large engine's. An index
// that is too small sends conversations away from what is cached, which costs
// more than one that is too large and trusts in what is evicted.
const DefaultKVTokens = 4_000_000

// Options are what a policy wants of a placement.
type Options struct {
	picker.Weights

	// Sessions bounds the session table.
	Sessions sessions.Bounds

	// PrefillTTL is how long a reservation may hold prefill tokens. Those of an
	// upstream are looked at when it may take a request.
	PrefillTTL time.Duration

	// PrefixIndex turns the prefix index on.
	PrefixIndex bool

	// KVTokens is how many tokens of prefix cache to index for each upstream.
	// When 0 it is what the engine reports, [DefaultKVTokens] while it does not.
	// The last placement's value is in force.
	KVTokens int

	// Models says what to do with upstreams that do not list the model.
	Models Models

	// Queue limits what upstreams hold, and says who may wait for room.
	Queue Queue

	// EqualSpeed ignores how fast the upstreams were measured to prefill. The
	// laboratory compares with it.
	EqualSpeed bool
}

// DefaultOptions returns the options of an unconfigured policy.
func DefaultOptions() Options {
	return Options{
		Weights:     picker.DefaultWeights(),
		Sessions:    sessions.Bounds{Max: 100_000, TTL: time.Hour},
		PrefillTTL:  10 * time.Minute,
		PrefixIndex: true,
	}
}

// Request is what a placement needs to know of a request.
type Request struct {
	// Session names the request's session, 0 for none.
	Session sessions.Key

	// Shared says that the session's name may stand for many conversations, as
	// that of a user or an application does. It then binds only a prompt that
	// extends the session's.
	Shared bool

	// Continues says that the prompt goes on with a response that its upstream
	// keeps. No other one can answer, and what it adds tells nothing of the
	// conversation.
	Continues bool

	// Response names the response that the request continues or asks for, 0 for
	// none. It goes to the upstream that keeps it, whatever that costs.
	Response ResponseKey

	// Model is the model that the request asks for, "" where it names none.
	Model string

	// Tried are the upstreams on which the request has failed before. They are
	// chosen only when there is no other.
	Tried []string

	// Tokens is the estimate of the whole prompt, at four bytes to the token.
	Tokens int

	// TextBytes is how much text of the prompt Tokens was made from, 0 where
	// that is not known. What has been learned of the model's tokens corrects
	// that part of the estimate, up to MaxTokens where that is not 0.
	TextBytes, MaxTokens int

	// Learns says that the prompt is text and nothing else, and was read to
	// its end: the usage of its response tells how long its tokens are.
	Learns bool

	// Blocks is the prompt as a chain of block hashes, nil when it was not
	// read. It must stay unchanged until the placement has ended.
	Blocks []uint64

	// Head names the tools and instructions that the prompt begins with, 0 for
	// none.
	Head uint64

	// Prefills says that the engine prefills a prompt for this request. One
	// that does not touches no session, holds no prefill tokens and is no
	// placement in the counters; it is only in flight.
	Prefills bool

	// Silent says that the response shows nothing before it is complete.
	Silent bool

	// Watched says that [Placement.Progress] tells what comes of the response.
	Watched bool
}

// streams reports that the response shows its progress.
func (r *Request) streams() bool { return r.Watched && r.Prefills && !r.Silent }

// Reason says why a request was placed where it is. The set is closed; it is
// the `reason` label of the metrics and the placeholder's value.
type Reason uint8

const (
	// ReasonNew is the first request of a session.
	ReasonNew Reason = iota
	// ReasonPinned stayed at the session's home, or went to the upstream that
	// keeps the response it continues.
	ReasonPinned
	// ReasonMovedPressure left a home that cost too much more than the best.
	ReasonMovedPressure
	// ReasonMovedUnavailable left a home that cannot take the request.
	ReasonMovedUnavailable
	// ReasonPrefix has no session and went where part of its prompt is cached.
	ReasonPrefix
	// ReasonLoad has no session and went where the cost is lowest.
	ReasonLoad
	// ReasonShadow went where another policy wanted it, see [Fleet.PlaceAt].
	ReasonShadow

	reasons
)

var reasonNames = [reasons]string{"new", "pinned", "moved_pressure", "moved_unavailable", "prefix", "load", "shadow"}

func (r Reason) String() string { return reasonNames[r] }

// Cause says what gave prefill tokens back. The set is closed; it is the
// `cause` label of the metrics.
type Cause uint8

const (
	// CauseFirstOutput is the first byte that shows the prefill is done.
	CauseFirstOutput Cause = iota
	// CauseEnd is the end of a response that showed no output before.
	CauseEnd
	// CauseError is a response with an error status, or none at all.
	CauseError
	// CauseCanceled is a client that left.
	CauseCanceled
	// CauseRetried is another attempt of the same request.
	CauseRetried
	// CauseInferred is a later request's first output.
	CauseInferred
	// CauseExpired is the end of the prefill TTL.
	CauseExpired

	causes
)

var causeNames = [causes]string{"first_output", "end", "error", "canceled", "retried", "inferred", "expired"}

func (c Cause) String() string { return causeNames[c] }

// Reasons is how many reasons there are: Reason(0) to Reason(Reasons-1).
const Reasons = int(reasons)

// Causes is how many causes there are: Cause(0) to Cause(Causes-1).
const Causes = int(causes)
