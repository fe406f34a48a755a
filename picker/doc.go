// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package picker scores upstreams and keeps the ledger of what was placed on
// them.
//
// The cost of an upstream is stated in prefill tokens, the unit that an
// engine works off:
//
//	cost  = request_cost * load + prefill + price * uncached + delay * avoidable
//	price = 1 + eviction / (1 + age / 60 s)
//	delay = congestion * min(mean waiting, waiting + 1)
//
// load and prefill are what is already on the upstream, uncached is what the
// request at hand would add to it, and avoidable is how much more that is than
// on the candidate that would have to add least. Uncached tokens do others two
// kinds of harm: they push recently used blocks out of the prefix cache, which
// the price charges for, and they hold up whoever waits for a first output,
// which the delay charges for. The delay is charged on avoidable tokens alone:
// what has to be computed anyway holds the fleet up wherever it is, and charging
// for it where fewer wait would pile all long prompts up on the upstream with
// the shortest queue.
//
// A [Ledger] holds one [Upstream] for each name, and a [Reservation] is what a
// placed request holds there: one request until [Ledger.Close], prefill tokens
// until [Ledger.FirstOutput]. A reservation keeps the pointer to the counters
// it raised, so that an upstream that left and came back under the same name
// is never decremented for its former self.
//
// Nothing here is safe for concurrent use. Choosing and reserving have to be
// one step that no other decision can come between, and that step also reads
// the sessions and the prefix index, so the lock belongs to whoever owns all
// three; that is package fleet.
package picker
