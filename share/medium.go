// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"context"
	"time"
)

// Medium carries messages among the routers of one fleet. It need not keep
// their order, and may lose some or bring some twice: what they say is made for
// that. Its methods are called from two goroutines, one each.
type Medium interface {
	// Send sends a message to all routers, which may include the sender. It
	// does not keep the message.
	Send(ctx context.Context, message []byte) error

	// Receive returns what was sent after a position, and waits until there is
	// something or ctx is done. From position "" it returns what is remembered
	// of the past, the oldest first, at once and even if that is nothing.
	Receive(ctx context.Context, after string) (Batch, error)
}

// Batch is what was received at once.
type Batch struct {
	Messages []Message

	// Next is the position to go on from, which is never "".
	Next string

	// Past says that the messages may be older than the router: what they say
	// of load is over.
	Past bool
}

// Message is one that was received.
type Message struct {
	Data []byte

	// Age is how long ago it was sent, about, by the clocks of whoever keeps it
	// and of the router. It is not negative.
	Age time.Duration
}
