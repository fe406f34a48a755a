// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package redis

import "sync/atomic"

const (
	// historyBytes is about how many bytes of messages a stream keeps.
	historyBytes = 64 << 20

	// leastHistory and mostHistory are the bounds of that in messages. Small ones
	// take Redis some sixty bytes more than they have.
	leastHistory = 1 << 7
	mostHistory  = 1 << 17

	// averaged is how many messages the mean size is that of, about.
	averaged = 64
)

// bound is how many messages a stream keeps, by the size of those seen lately:
// Redis can bound a stream by their number only. The zero value knows of none.
type bound struct{ mean atomic.Int64 }

// saw takes the size of a message into account.
func (b *bound) saw(bytes int) {
	mean := b.mean.Load()
	if mean == 0 {
		mean = int64(bytes)
	}
	// a lost update of two at once changes next to nothing
	b.mean.Store(mean + (int64(bytes)-mean)/averaged)
}

// messages is how many the stream may have.
func (b *bound) messages() int64 {
	return min(max(historyBytes/max(b.mean.Load(), 1), leastHistory), mostHistory)
}
