// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet is the state of one fleet of upstreams, and the one step in
// which a request is placed on it.
//
// A [Fleet] owns the ledger, the sessions and the prefix indexes, and one lock
// around all three. [Fleet.Place] scores, chooses, reserves, moves the session
// and records the prompt under that lock, with nothing awaited in between, so
// each decision sees every earlier one. No method holds the lock across
// anything but arithmetic and map accesses.
//
// Where a policy limits what upstreams hold, [Fleet.Place] may find no room. Such
// a request waits in [Fleet.Wait] without the lock, and is placed by whoever
// makes room: each step that may do so ends by placing those that fit.
//
// A fleet outlives configurations. It holds no configuration of its own:
// weights and bounds come in as [Options] with every placement.
//
// Several fleets in front of the same upstreams, each of its own router, place as
// one does where they are shared: [Fleet.Share]. What a router does is gathered in
// bounded buffers under the same lock, in the step in which it is done, and taken
// by [Fleet.News]; what others do comes in by [Fleet.Hear]. What they hold counts
// in costs and limits as what the router itself holds does, for as long as they
// are heard, and is no load from elsewhere. Homes, blocks and responses become the
// fleet's own. Which upstreams fail, are silent or drained, how fast they are and
// who waits in line stays with each router. The fleet knows nothing of how news
// travel; that is package share.
//
// The package takes the time as an argument, but for [Fleet.Wait], and knows
// neither Caddy nor HTTP; the laboratory in bench drives it in virtual time.
package fleet
