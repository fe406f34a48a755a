// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Package prefixes remembers which prompt blocks an upstream has seen.
//
// A prompt is a chain of block hashes in which each hash stands for its block
// and everything before it. An [Index] holds the blocks that one upstream is
// believed to have in its prefix cache, least recently used last, as the engine
// does. Using a chain touches its last block first, so a block is never older
// than a longer chain that contains it; eviction takes the ends of chains
// before their beginnings, and the length of a match is found by bisection
// instead of a walk over every block.
//
// Nothing here is safe for concurrent use: a match is part of the step in
// which a request is placed, under the lock of package fleet.
package prefixes

import (
	"math"
	"slices"
	"time"
)

// Owner names the placement that recorded blocks, so that a failed one can be
// taken back without harm to those that came after it.
type Owner uint32

// Index is the belief about one upstream's prefix cache. Its zero value holds
// no blocks at all; [Index.Resize] gives it room.
type Index struct {
	slots    map[uint64]int32
	entries  []entry
	newest   int32
	oldest   int32
	free     int32
	capacity int
}

// entry is one block. Links are positions in Index.entries, none is -1; free
// entries are linked by older.
type entry struct {
	hash         uint64
	used         int64
	newer, older int32

	// claims counts the placements that recorded the block and were not taken
	// back, and added is the first of them: one from before knew another
	// entry, which has been evicted since
	added  Owner
	claims uint32

	// before is the hash of the block before it in its chain, 0 where there is
	// none or it is not known
	before uint64
}

const none = -1

// Len is how many blocks are held.
func (x *Index) Len() int { return len(x.slots) }

// Capacity is how many blocks there is room for.
func (x *Index) Capacity() int { return x.capacity }

// Resize sets how many blocks there is room for and evicts what is too much.
// Memory grows with the blocks held, not with the capacity.
func (x *Index) Resize(blocks int) {
	x.capacity = min(max(blocks, 0), math.MaxInt32/2)
	x.Settle()
}

// Clear forgets every block and keeps the capacity.
func (x *Index) Clear() { *x = Index{capacity: x.capacity} }

// Match returns how many of the leading blocks of chain are held.
func (x *Index) Match(chain []uint64) int {
	if len(x.slots) == 0 || len(chain) == 0 {
		return 0
	}
	held, _ := slices.BinarySearchFunc(chain, true, func(hash uint64, _ bool) int {
		if _, ok := x.slots[hash]; ok {
			return -1
		}
		return 1
	})
	return held
}

// Record notes that owner sends chain to the upstream, and returns how many of
// its leading blocks were held before. Blocks over the capacity are left out from
// the end of the chain. A quarter more than the capacity is held until
// [Index.Settle], so that prompts which are taken back have evicted nothing.
func (x *Index) Record(chain []uint64, owner Owner, now time.Time) (held int) {
	if x.capacity == 0 {
		return 0
	}
	return x.record(chain[:min(len(chain), x.capacity)], 0, owner, now)
}

// record puts a chain that follows the block named before in front of the list.
func (x *Index) record(chain []uint64, before uint64, owner Owner, now time.Time) (held int) {
	if x.slots == nil {
		x.slots = make(map[uint64]int32)
		x.newest, x.oldest, x.free = none, none, none
	}
	used := now.UnixNano()
	for i, hash := range slices.Backward(chain) {
		at, ok := x.slots[hash]
		if ok {
			x.unlink(at)
			held = max(held, i+1)
		} else {
			at = x.add(hash, owner)
		}
		e := &x.entries[at]
		if i > 0 {
			e.before = chain[i-1]
		} else {
			e.before = before
		}
		e.use(used)
		x.link(at)
	}
	return held
}

// use makes a block one that was used at a time, and that one placement more
// vouches for.
func (e *entry) use(at int64) {
	e.used = at
	e.claims = max(e.claims, e.claims+1) // stays at the most it can be
}

// Settle evicts what is over the capacity: what was recorded is known to have
// reached the engine.
func (x *Index) Settle() {
	for len(x.slots) > x.capacity {
		x.remove(x.oldest)
	}
}

// TakeBack takes back what owner has said of chain; it must be called at most
// once for a Record. Blocks that another placement recorded too stay until
// that is taken back as well.
func (x *Index) TakeBack(chain []uint64, owner Owner) {
	for _, hash := range chain {
		at, ok := x.slots[hash]
		if !ok {
			continue
		}
		e := &x.entries[at]
		if int32(e.added-owner) > 0 {
			continue
		}
		if e.claims--; e.claims == 0 {
			x.remove(at)
		}
	}
}

// Age returns how long ago the block that would be evicted next was last used.
// full is false while so much room is left that nothing needs to go.
func (x *Index) Age(now time.Time) (age time.Duration, full bool) {
	if len(x.slots) == 0 || len(x.slots) < x.capacity-x.capacity/10 {
		return 0, false
	}
	return time.Duration(now.UnixNano() - x.entries[x.oldest].used), true
}

func (x *Index) add(hash uint64, owner Owner) int32 {
	if len(x.slots) >= x.capacity+x.capacity/4 {
		x.remove(x.oldest)
	}
	at := x.free
	if at == none {
		x.entries = append(x.entries, entry{})
		at = int32(len(x.entries) - 1)
	} else {
		x.free = x.entries[at].older
	}
	x.entries[at] = entry{hash: hash, added: owner}
	x.slots[hash] = at
	return at
}

func (x *Index) remove(at int32) {
	delete(x.slots, x.entries[at].hash)
	x.unlink(at)
	x.entries[at].older = x.free
	x.free = at
}

func (x *Index) link(at int32) {
	e := &x.entries[at]
	e.newer, e.older = none, x.newest
	if x.newest == none {
		x.oldest = at
	} else {
		x.entries[x.newest].newer = at
	}
	x.newest = at
}

func (x *Index) unlink(at int32) {
	e := &x.entries[at]
	if e.newer == none {
		x.newest = e.older
	} else {
		x.entries[e.newer].older = e.older
	}
	if e.older == none {
		x.oldest = e.newer
	} else {
		x.entries[e.older].newer = e.newer
	}
}
