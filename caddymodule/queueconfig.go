// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-llm/loadaware/fleet"
)

// What is not set of Queue.
const (
	defaultMaxWaiting = 1000
	defaultMaxWait    = 30 * time.Second
)

// Queue limits what an upstream holds, and lets requests wait while all
// upstreams are at the limit. At least one of `max_prefill_tokens` and
// `max_requests` must be set. Requests without a prompt never wait.
//
// A request waits while every upstream that it could be placed on is at its
// limit. It waits in order: interactive requests before batch ones, of which
// one goes with every eighth grant all the same, and within each class sessions
// take turns, or clients where there is no session: by their `Authorization` or
// `X-Api-Key` header, or by their address. What makes room places the next one
// in the same step, and nobody overtakes one that waits for the same upstream.
//
// A session whose home is at its limit while others have room waits there as
// long as the home, with what is reserved on it and what waits for it, costs no
// more than `stickiness` over the best that has room.
//
// One that waits too long, or that is one too many, is answered with status
// 429, `Retry-After` and a JSON error by the `llm_loadaware` handler in front of
// the proxy; without that Caddy answers 503. Of too many, the last in order
// goes. A retry goes before all others of its class.
//
// The order is one for all policies of a fleet, and each request is held to the
// options of its own policy. One that waits when the configuration is reloaded
// goes on with the options and upstreams it came with.
type Queue struct {
	// MaxPrefillTokens is how many prefill tokens may be reserved on an
	// upstream. Those of a request that would be the only one there do not
	// count, so one prompt longer than that can always run alone.
	// Default: 0, which is no limit.
	MaxPrefillTokens int `json:"max_prefill_tokens,omitempty"`

	// MaxRequests is how many requests with a prompt may be in flight on an
	// upstream. Default: 0, which is no limit.
	MaxRequests int `json:"max_requests,omitempty"`

	// MaxWaiting is how many requests may wait in the whole fleet.
	// Default: 1000.
	MaxWaiting int `json:"max_waiting,omitempty"`

	// MaxWait is how long a request may wait, over all its retries.
	// Default: 30s.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// PriorityHeader names a request header that tells the class of a request:
	// `batch` or `interactive`, or a number, which is batch above 0. Everything
	// else is interactive. Clients choose their class with it, so a route that
	// serves others should set or delete it. Default: none, which takes every
	// request for interactive.
	PriorityHeader string `json:"priority_header,omitempty"`
}

func (q *Queue) setDefaults() {
	set(&q.MaxWaiting, defaultMaxWaiting)
	set(&q.MaxWait, caddy.Duration(defaultMaxWait))
	q.PriorityHeader = http.CanonicalHeaderKey(q.PriorityHeader)
}

// options are those of a placement.
func (q *Queue) options() fleet.Queue {
	return fleet.Queue{
		MaxPrefillTokens: q.MaxPrefillTokens,
		MaxRequests:      q.MaxRequests,
		MaxWaiting:       q.MaxWaiting,
		MaxWait:          time.Duration(q.MaxWait),
	}
}

// errNoLimit is for a queue that nobody would ever wait in.
var errNoLimit = errors.New("queue needs max_prefill_tokens or max_requests")

// validate checks the ranges of the options. It takes nil for a queue that is
// off.
func (q *Queue) validate() error {
	switch {
	case q == nil:
		return nil
	case q.MaxPrefillTokens < 0:
		return fmt.Errorf("queue max_prefill_tokens must not be negative")
	case q.MaxRequests < 0:
		return fmt.Errorf("queue max_requests must not be negative")
	case q.MaxPrefillTokens == 0 && q.MaxRequests == 0:
		return errNoLimit
	case q.MaxWaiting < 1:
		return fmt.Errorf("queue max_waiting must be at least 1")
	case q.MaxWait <= 0:
		return fmt.Errorf("queue max_wait must be positive")
	}
	return nil
}

// unmarshalCaddyfile sets up the queue from Caddyfile tokens, of which the
// option's name is the current one. Syntax:
//
//	queue {
//	    max_prefill_tokens <n>
//	    max_requests       <n>
//	    max_waiting        <n>
//	    max_wait           <duration>
//	    priority_header    <field>
//	}
//
// One of the first two is needed. The others have defaults: see the fields of
// Queue.
func (q *Queue) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.Errf("queue takes a block of options and no argument, and '%s' is one", d.Val())
	}
	if err := parseBlock(d, d.Nesting(), q.unmarshalOption); err != nil {
		return err
	}
	if q.MaxPrefillTokens == 0 && q.MaxRequests == 0 {
		return d.Errf("%v", errNoLimit)
	}
	return nil
}

func (q *Queue) unmarshalOption(d *caddyfile.Dispenser) error {
	switch d.Val() {
	case "max_prefill_tokens":
		return parseValue(d, &q.MaxPrefillTokens, parsePositive)
	case "max_requests":
		return parseValue(d, &q.MaxRequests, parsePositive)
	case "max_waiting":
		return parseValue(d, &q.MaxWaiting, parsePositive)
	case "max_wait":
		return parseValue(d, &q.MaxWait, parseDuration)
	case "priority_header":
		return parseValue(d, &q.PriorityHeader, parseName)
	}
	return d.Errf("unrecognized queue option '%s'", d.Val())
}
