// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import "time"

// Extend notes what another router has sent to the upstream: a chain that begins
// as the index knows it up to and with the block named after, and goes on with
// blocks. after is 0 where blocks are the whole chain. It does what
// [Index.Record] does with all of the chain, and nothing where that block is not
// held: what follows it could not be matched. It reports whether it was, and how
// many blocks up to it were: each was looked at twice. A use that is older than the
// last one of any block counts as made at that one's time.
func (x *Index) Extend(after uint64, blocks []uint64, owner Owner, now time.Time) (depth int, held bool) {
	if len(x.slots) > 0 {
		now = time.Unix(0, max(now.UnixNano(), x.entries[x.newest].used))
	}
	depth = x.touch(after, now, false)
	if after != 0 && depth == 0 {
		return 0, false
	}
	if room := x.capacity - depth; room > 0 && len(blocks) > 0 {
		x.record(blocks[:min(len(blocks), room)], after, owner, now)
	}
	x.touch(after, now, true)
	return depth, true
}

// touch makes the chain that ends with the block named last the most recently
// used one, and returns how many of its blocks are held. With claim, one
// placement more vouches for them.
func (x *Index) touch(last uint64, now time.Time, claim bool) (depth int) {
	used := now.UnixNano()
	for e := range x.upwards(last) {
		at := x.slots[e.hash]
		x.unlink(at)
		x.link(at)
		if claim {
			e.use(used)
		}
		depth++
	}
	return depth
}

// Withdraw takes back what [Index.Extend] has said of the chain that ends with
// the block named last, as [Index.TakeBack] does for a placement of this router,
// and returns how many blocks were held of it.
func (x *Index) Withdraw(last uint64) (depth int) {
	for e := range x.upwards(last) {
		depth++
		if e.claims--; e.claims == 0 {
			x.remove(x.slots[e.hash])
		}
	}
	return depth
}

// Holds reports that a block is held.
func (x *Index) Holds(hash uint64) bool {
	_, ok := x.slots[hash]
	return ok
}

// upwards ranges over a chain from its last block to its first. What it yields
// may be unlinked and removed.
func (x *Index) upwards(last uint64) func(yield func(*entry) bool) {
	return func(yield func(*entry) bool) {
		// no chain is longer than what is held, whatever was heard
		for left := len(x.slots); last != 0 && left > 0; left-- {
			at, ok := x.slots[last]
			if !ok {
				return
			}
			e := &x.entries[at]
			last = e.before
			if !yield(e) {
				return
			}
		}
	}
}
