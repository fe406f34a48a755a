// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"iter"
	"slices"
	"time"
)

// Blocks are the blocks that an index held at one moment. They share no memory
// with it.
type Blocks struct {
	entries []entry
	oldest  int32
	n       int
}

// Block is one block with the time of its last use, in nanoseconds of Unix time.
type Block struct {
	Hash uint64
	Used int64
}

// Blocks returns the blocks that are held. It copies memory in one piece, which
// is all that has to be done under a lock.
func (x *Index) Blocks() Blocks {
	return Blocks{entries: slices.Clone(x.entries), oldest: x.oldest, n: len(x.slots)}
}

// Len is how many blocks there are.
func (b *Blocks) Len() int { return b.n }

// All ranges over the blocks, the one that was used least recently first.
func (b *Blocks) All() iter.Seq[Block] {
	return func(yield func(Block) bool) {
		at := b.oldest
		for range b.n {
			e := &b.entries[at]
			if !yield(Block{e.hash, e.used}) {
				return
			}
			at = e.newer
		}
	}
}

// Restore makes an index that holds nothing hold these blocks, the one that was
// used least recently first, with room for as many as capacity. No placement
// takes them back. It does nothing where the index holds something.
func (x *Index) Restore(blocks []Block, capacity int, owner Owner, now time.Time) {
	if len(x.slots) > 0 {
		return
	}
	x.Clear()
	x.Resize(capacity)
	if x.capacity == 0 || len(blocks) == 0 {
		return
	}
	x.slots = make(map[uint64]int32, min(len(blocks), x.capacity))
	x.newest, x.oldest, x.free = none, none, none
	for _, b := range blocks[max(len(blocks)-x.capacity, 0):] {
		if _, ok := x.slots[b.Hash]; ok {
			continue
		}
		at := x.add(b.Hash, owner)
		// none from a clock that was ahead of this one
		x.entries[at].used, x.entries[at].claims = min(b.Used, now.UnixNano()), 1
		x.link(at)
	}
}
