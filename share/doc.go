// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package share lets several routers place requests as one does.
//
// Each router decides by itself, at once, from what it knows. What it does it
// tells the others: what it has placed within 20 ms, what was given back within
// 200 ms, and each second in any case. A [Link] takes the news of one fleet, which [Encode] makes a message,
// and gives them to a [Medium]; what that brings from others, the fleet hears.
// Nothing that a request waits for ever waits for a medium: while one fails, the
// routers go on from what they know, and what the others held is forgotten after
// three seconds.
//
// Who owns what: the fleet owns all that is told and heard, under its own lock,
// which is held neither in a medium nor while a message is read or written. A
// link owns its two goroutines and the memory that they use; only whether the
// medium works is common to both, under the link's lock. A medium owns its
// connections.
package share
