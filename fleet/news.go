// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"time"

	"github.com/caddy-llm/loadaware/picker"
	"github.com/caddy-llm/loadaware/sessions"
)

// News is what one router of several tells the others: what it holds on the
// upstreams now, and what it has learned since it last told. It has hashes of
// what clients have sent, and nothing else of them.
type News struct {
	// Serial counts the news of a router from 1.
	Serial uint64

	// Age is how long ago news of the past were told. It is not part of a
	// message, and 0 for all others.
	Age time.Duration

	// Loads are all that the router holds, so that lost news heal with the
	// next. What is not in it is 0.
	Loads []Load

	// Homes are the sessions that have got a home, lost one or had a turn.
	Homes []Home

	// Blocks are the prompts that were recorded or taken back, in order.
	Blocks []Blocks

	// Responses are those that upstreams have begun to keep.
	Responses []StoredResponse

	// hashes is where those of Blocks are
	hashes []uint64
}

// Load is what a router holds on an upstream.
type Load struct {
	Upstream string
	picker.Load

	// Assigned orders the upstreams of the router by when it last placed a
	// request with a prompt there. It is 0 while it never has.
	Assigned uint64
}

// Home is where a router believes a session to be at home.
type Home struct {
	Session sessions.Key

	// Upstream is the home, "" where a home was taken back, and Version is which
	// of the session's homes it is.
	Upstream string
	Version  sessions.Version

	// Settled says that a request of the session has succeeded there, and Size
	// and Line are those of the session.
	Settled bool
	Size    int
	Line    sessions.Line
}

// Blocks is a prompt that was placed on an upstream, or taken back from there.
type Blocks struct {
	Upstream string

	// After is the hash of the prompt's last block that the router knew there, 0
	// where it knew none, and Hashes are the blocks after that. Only these are
	// told: the others were before.
	After  uint64
	Hashes []uint64

	// Gone says that a placement has failed: what it has said of the prompt that
	// ends with the block After is taken back.
	Gone bool
}
