// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package caddymodule adapts the fleet to Caddy. It is the only package that
// knows Caddy, zap, Prometheus and HTTP.
//
// A request meets it three times. [Handler] reads it and makes its attempt, the
// record that every part finds among the request's variables. The policy
// [LoadAwareSelection] places it on the [fleet.Fleet] that its lease refers to,
// once for each dispatch, and lets it wait there for room where it has a queue.
// The response writer sees the first output and the status and keeps the end of
// the body, and the handler's deferred end takes the usage out of that and gives
// back what is still held, also when Caddy aborts the stream by a panic. Before
// that the handler answers a request that was turned away.
//
// Beside the requests, a scraper asks the engines about themselves from the start
// of its configuration to its end, and a session store writes what the fleet
// remembers to Caddy's storage. Where the fleet is shared, a link tells other Caddys
// what this one does and hears what they do. Nothing in a request's path waits for
// them.
//
// A [StatusHandler] shows a fleet to those who watch. Their streams share what a hub
// makes of it once for each interval, from copies, and nothing runs without them.
//
// Who owns what:
//
//   - The pool of fleets is process-wide and guards itself. A lease guards its
//     reference count with its own lock.
//   - All counters, sessions and indexes are behind the lock of their fleet.
//   - An attempt is touched by one goroutine at a time: the request's, or one
//     that writes the response for it. The end of the request's context, which
//     ends a placement where no handler is on the stack, comes from anywhere and
//     goes through the placement alone.
//   - Which policy scrapes an upstream is kept with the pooled fleet, behind a lock
//     that is held while a report is given to the fleet, and never the other way
//     round. A scrape target is touched by its own goroutine alone.
//   - Which policy stores the sessions is kept with the pooled fleet too. A lock of
//     its own is held while one of them writes; that of the fleet is held for
//     portions of the copy only.
//   - Over what the fleet is shared, and the link, are kept with the pooled fleet, and
//     outlive a configuration that changes nothing of that. A lock of its own is held
//     while a link begins or ends, which waits for nobody's answer.
//   - What a hub has made is behind a lock of its own, which is held while an event
//     is made; that of the fleet is held for the copies only.
//   - A policy's fields are read-only once it is provisioned, but for the pool
//     it resolved last.
package caddymodule
