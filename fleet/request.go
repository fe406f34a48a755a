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

	// KVTokens is how many tokens of prefix cache to index for each upstream,
	// [DefaultKVTokens] when 0. The last placement's value is in force.
	KVTokens int
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

	// Tokens is the estimate of the whole prompt.
	Tokens int

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
}

// Reason says why a request was placed where it is. The set is closed; it is
// the `reason` label of the metrics and the placeholder's value.
type Reason uint8

const (
	// ReasonNew is the first request of a session.
	ReasonNew Reason = iota
	// ReasonPinned stayed at the session's home.
	ReasonPinned
	// ReasonMovedPressure left a home that cost too much more than the best.
	ReasonMovedPressure
	// ReasonMovedUnavailable left a home that cannot take the request.
	ReasonMovedUnavailable
	// ReasonPrefix has no session and went where part of its prompt is cached.
	ReasonPrefix
	// ReasonLoad has no session and went where the cost is lowest.
	ReasonLoad

	reasons
)

var reasonNames = [reasons]string{"new", "pinned", "moved_pressure", "moved_unavailable", "prefix", "load"}

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
