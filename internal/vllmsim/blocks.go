// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "slices"

// none is the index of no block.
const none int32 = -1

// block is one KV block. A block with references belongs to running requests; one without is in the free queue, and
// as long as it is cached its content can still be found.
type block struct {
	hash       uint64
	prev, next int32 // neighbours in the free queue
	chain      int32 // next block in the same bucket of the index
	child      int32 // hint: a block that continued this one; trusted only if its hash matches
	refs       int32
	cached     bool
}

// pool holds all blocks of an engine: the free queue in order of eviction and the index of cached blocks. Every
// operation on one block takes constant time, because traces touch them by the hundred million.
type pool struct {
	blocks  []block // one more than the capacity: the last is the sentinel of the free queue
	buckets []int32 // heads of the index's chains
	shift   uint    // 64 - log2(len(buckets))
	free    int     // blocks in the free queue
	version uint64  // moves when an admission that was refused may have become possible
}

func newPool(capacity int) *pool {
	size, shift := 1, uint(64)
	for size < capacity {
		size, shift = size*2, shift-1
	}
	p := &pool{blocks: make([]block, capacity+1), buckets: make([]int32, size), shift: shift}
	p.clear()
	return p
}

// clear forgets every block, held or not.
func (p *pool) clear() {
	for i := range p.buckets {
		p.buckets[i] = none
	}
	n := int32(len(p.blocks) - 1)
	for i := range p.blocks {
		p.blocks[i] = block{prev: int32(i) - 1, next: int32(i) + 1, chain: none, child: none}
	}
	p.blocks[0].prev, p.blocks[n].next = n, 0
	p.free = int(n)
	p.version++
}

func (p *pool) capacity() int { return len(p.blocks) - 1 }

// bucket mixes the hash first: callers may use small numbers.
func (p *pool) bucket(hash uint64) *int32 {
	return &p.buckets[(hash*0x9e3779b97f4a7c15)>>p.shift]
}

// find returns the cached block named hash. parent is the block before it, or none; its hint spares most look-ups in
// the index, which for a long prompt would each miss the processor's cache.
func (p *pool) find(hash uint64, parent int32) int32 {
	if parent != none {
		if c := p.blocks[parent].child; c != none && p.blocks[c].cached && p.blocks[c].hash == hash {
			return c
		}
	}
	for b := *p.bucket(hash); b != none; b = p.blocks[b].chain {
		if p.blocks[b].hash == hash {
			return b
		}
	}
	return none
}

// hold adds a reference to a cached block.
func (p *pool) hold(b int32) {
	if p.blocks[b].refs == 0 {
		p.unlink(b)
	}
	p.blocks[b].refs++
}

// take evicts the block at the head of the free queue and returns it with one reference. The pool must have a free
// block.
func (p *pool) take() int32 {
	b := p.blocks[p.capacity()].next
	p.unlink(b)
	p.forget(b)
	p.blocks[b].refs = 1
	return b
}

// release drops one reference to each block of a table. The last block enters the free queue first, so that a prompt
// loses its tail before its head; blocks that nobody can find go to the head of the queue.
func (p *pool) release(table []int32) {
	sentinel := int32(p.capacity())
	for _, v := range slices.Backward(table) {
		b := v
		p.blocks[b].refs--
		if p.blocks[b].refs > 0 {
			continue
		}
		if p.blocks[b].cached {
			p.link(b, p.blocks[sentinel].prev)
		} else {
			p.link(b, sentinel)
		}
	}
	p.version++
}

// publish makes a held block findable and returns the block that stands for hash from now on. When two held blocks
// have the same content the earlier one keeps the name; one in the free queue gives it up, because it goes sooner.
func (p *pool) publish(b int32, hash uint64, parent int32) int32 {
	old := p.find(hash, parent)
	if old != none && p.blocks[old].refs == 0 {
		p.forget(old)
		old = none
	}
	if old != none {
		b = old
	} else {
		head := p.bucket(hash)
		p.blocks[b].hash, p.blocks[b].cached, p.blocks[b].chain = hash, true, *head
		*head = b
		p.version++
	}
	if parent != none {
		p.blocks[parent].child = b
	}
	return b
}

// drop forgets the content of every block in the free queue.
func (p *pool) drop() {
	sentinel := int32(p.capacity())
	for b := p.blocks[sentinel].next; b != sentinel; b = p.blocks[b].next {
		p.forget(b)
	}
}

// forget removes a block from the index.
func (p *pool) forget(b int32) {
	if !p.blocks[b].cached {
		return
	}
	at := p.bucket(p.blocks[b].hash)
	for *at != b {
		at = &p.blocks[*at].chain
	}
	*at = p.blocks[b].chain
	p.blocks[b].cached, p.blocks[b].child = false, none
}

// link puts a block into the free queue behind another.
func (p *pool) link(b, after int32) {
	before := p.blocks[after].next
	p.blocks[b].prev, p.blocks[b].next = after, before
	p.blocks[after].next, p.blocks[before].prev = b, b
	p.free++
}

// unlink takes a block out of the free queue.
func (p *pool) unlink(b int32) {
	prev, next := p.blocks[b].prev, p.blocks[b].next
	p.blocks[prev].next, p.blocks[next].prev = next, prev
	p.free--
}
