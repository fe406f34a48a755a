// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package workload makes the traffic of the laboratory.
//
// A workload is a sequence of clients. Each client follows a [Script]: it
// sends a request, waits for the whole answer, thinks, and sends the next. A
// slower fleet therefore sees the same requests later, never fewer of them. A
// client of a workload without sessions sends one request and is gone.
//
// Text is never made. A prompt is a chain of block names, in which each name
// stands for its block and everything before it, so that equal beginnings have
// equal names. Everything is drawn from seeds: equal arguments give equal
// traffic, whatever the rule that places it, and a higher rate sends the same
// clients closer together.
package workload

import "time"

// Request is one prompt and the length of its answer.
type Request struct {
	// Session names the conversation, 0 for none.
	Session uint64

	// Tokens is the length of the prompt.
	Tokens int

	// Blocks names the whole blocks of the prompt, and Answer those that the
	// end of the prompt and the answer fill together.
	Blocks, Answer []uint64

	// Output is how many tokens the answer has.
	Output int

	// Streamed says that the client sees tokens as they come. The answer of
	// any other request shows nothing before it is complete.
	Streamed bool

	// Writer names who wrote what is not shared: estimates of all texts of one
	// writer are off by the same factor. 0 is a writer whose texts are
	// estimated exactly. Shared is how many tokens at the beginning of the
	// prompt come from elsewhere, such as tools and a system prompt.
	Writer uint64
	Shared int
}

// Step is one request of a script and what precedes it.
type Step struct {
	// Think is the time between the end of the previous answer and this
	// request.
	Think time.Duration

	// Took is how long the answer takes on a fleet with little load. It only
	// tells where a session stands that began before the run.
	Took time.Duration

	// Beside are scripts that start with the end of the previous answer and
	// run during Think. The step waits for their ends too.
	Beside []*Script
}

// Script is what one client does.
type Script struct {
	Steps []Step

	// Request makes the request of a step. It is called at most once for each
	// step, in order.
	Request func(step int) Request
}

// Single is the script of a client with one request.
func Single(r Request) *Script {
	return &Script{Steps: make([]Step, 1), Request: func(int) Request { return r }}
}

// Arrivals returns the next client and when it comes, in order of time; ok is
// false after the last one. A client's first request is sent Think of its first
// step later.
type Arrivals func() (at time.Duration, s *Script, ok bool)
