// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"slices"
	"testing"
	"time"
)

// naive is an index as its documentation tells it: blocks in the order of
// their use, newest first, each with the set of placements that vouch for it.
type naive struct {
	capacity int
	blocks   []vouched
}

type vouched struct {
	hash uint64
	by   map[Owner]bool
}

func (n *naive) at(hash uint64) int {
	return slices.IndexFunc(n.blocks, func(v vouched) bool { return v.hash == hash })
}

func (n *naive) resize(capacity int) {
	n.capacity = capacity
	n.blocks = n.blocks[:min(len(n.blocks), capacity)]
}

func (n *naive) record(chain []uint64, owner Owner) {
	for _, hash := range slices.Backward(chain[:min(len(chain), n.capacity)]) {
		v := vouched{hash, map[Owner]bool{}}
		if at := n.at(hash); at >= 0 {
			v = n.blocks[at]
			n.blocks = slices.Delete(n.blocks, at, at+1)
		}
		v.by[owner] = true
		n.blocks = slices.Insert(n.blocks, 0, v)
		n.blocks = n.blocks[:min(len(n.blocks), n.capacity+n.capacity/4)]
	}
}

func (n *naive) takeBack(chain []uint64, owner Owner) {
	for _, hash := range chain {
		if at := n.at(hash); at >= 0 && n.blocks[at].by[owner] {
			delete(n.blocks[at].by, owner)
			if len(n.blocks[at].by) == 0 {
				n.blocks = slices.Delete(n.blocks, at, at+1)
			}
		}
	}
}

func (n *naive) match(chain []uint64) int {
	for i, hash := range chain {
		if n.at(hash) < 0 {
			return i
		}
	}
	return len(chain)
}

// FuzzIndex reads two bytes as one step: what to do, and with what. The prompts
// are paths in a tree in which every block has two continuations, so that they
// share beginnings of every length.
func FuzzIndex(f *testing.F) {
	var prompts [256][]uint64
	for b := range prompts {
		letters := make([]byte, 1+b>>5)
		for i := range letters {
			letters[i] = byte(b) >> i & 1
		}
		prompts[b] = chain(string(letters))
	}
	f.Add([]byte{})
	f.Add([]byte{3, 12, 0, 255, 0, 17, 0, 255, 1, 0, 1, 1})
	f.Add([]byte{3, 5, 0, 255, 0, 85, 0, 170, 3, 2, 0, 129, 4, 0, 0, 33})
	// the three lengths of one prompt whose first and last placement fail
	f.Add([]byte{3, 20, 0, 128, 0, 64, 0, 32, 1, 2, 1, 0})
	f.Fuzz(func(t *testing.T, steps []byte) {
		steps = steps[:min(len(steps), 200)]
		var x Index
		var model naive
		type placement struct {
			chain []uint64
			owner Owner
		}
		var placements []placement
		recorded := map[uint64]bool{}
		resize := func(capacity int) {
			x.Resize(capacity)
			model.resize(capacity)
		}
		resize(8)
		for owner := Owner(1); len(steps) >= 2; owner++ {
			what, b := steps[0]%8, steps[1]
			steps = steps[2:]
			switch what {
			default:
				c := prompts[b]
				x.Record(c, owner, start.Add(time.Duration(owner)))
				model.record(c, owner)
				placements = append(placements, placement{c, owner})
				for _, hash := range c {
					recorded[hash] = true
				}
			case 1, 2:
				if len(placements) == 0 {
					break
				}
				at := int(b) % len(placements)
				p := placements[at]
				placements = slices.Delete(placements, at, at+1)
				x.TakeBack(p.chain, p.owner)
				model.takeBack(p.chain, p.owner)
			case 3:
				resize(int(b) % 24)
			case 5:
				x.Settle()
				model.resize(model.capacity)
			case 4:
				x.Clear()
				model.resize(0)
				model.resize(x.Capacity())
			}
			sound(t, &x)
			if x.Len() != len(model.blocks) {
				t.Fatalf("Len() = %v, want %v", x.Len(), len(model.blocks))
			}
			for b, c := range prompts {
				got, want := x.Match(c), model.match(c)
				if got != want {
					t.Fatalf("Match(%v) = %v, want %v", b, got, want)
				}
				for i, hash := range c {
					if _, held := x.slots[hash]; held != (i < got) {
						t.Fatalf("block %d of %v is held: %v, want %v as %d match", i, b, held, i < got, got)
					}
					if i < got && !recorded[hash] {
						t.Fatalf("Match(%v) = %v, want what was recorded", b, got)
					}
				}
			}
		}
	})
}
