// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"slices"
	"testing"
	"time"
)

func blocksOf(x *Index) []Block {
	b := x.Blocks()
	return slices.Collect(b.All())
}

func TestRestore(t *testing.T) {
	begin := time.Unix(1000, 0)
	var x Index
	x.Resize(6)
	x.Record([]uint64{1, 2, 3}, 1, begin)
	x.Record([]uint64{1, 5}, 2, begin.Add(time.Second))
	x.Record([]uint64{7}, 3, begin.Add(time.Second))
	x.TakeBack([]uint64{7}, 3)
	kept := blocksOf(&x)
	hashes := make([]uint64, len(kept))
	for i, b := range kept {
		hashes[i] = b.Hash
	}
	if want := []uint64{3, 2, 5, 1}; !slices.Equal(hashes, want) {
		t.Errorf("blocks = %v, want %v: the oldest first", hashes, want)
	}
	x.Record([]uint64{8, 9}, 4, begin.Add(time.Minute))
	if len(kept) != 4 {
		t.Errorf("%d blocks, want those of then", len(kept))
	}

	var next Index
	next.Restore(kept, 6, 40, begin.Add(time.Minute))
	if !slices.Equal(blocksOf(&next), kept) || next.Capacity() != 6 || next.Match([]uint64{1, 2, 3, 4}) != 3 {
		t.Errorf("restored blocks = %v, capacity %d, want %v and 6", blocksOf(&next), next.Capacity(), kept)
	}
	// no placement takes them back, and they are evicted like any other
	next.Record([]uint64{1, 2}, 41, begin.Add(time.Minute))
	next.TakeBack([]uint64{1, 2}, 41)
	if next.Match([]uint64{1, 2, 3}) != 3 {
		t.Error("a restored block was taken back")
	}
	next.Resize(2)
	if next.Match([]uint64{1, 2, 3}) != 2 || next.Len() != 2 {
		t.Errorf("blocks after Resize(2) = %v, want 2 and 1", blocksOf(&next))
	}
	next.Restore(kept, 6, 40, begin)
	if next.Len() != 2 {
		t.Error("an index that holds something was restored")
	}
}

func TestRestoreWithinCapacity(t *testing.T) {
	now := time.Unix(1000, 0)
	future := now.Add(time.Hour).UnixNano()
	list := []Block{{1, 5}, {2, 6}, {3, 7}, {3, 8}, {4, future}}
	for capacity, want := range map[int]int{0: 0, 2: 1 + 1, 9: 4} {
		var x Index
		x.Restore(list, capacity, 1, now)
		if x.Len() != want || capacity > 0 && x.Match([]uint64{4}) != 1 {
			t.Errorf("capacity %d: blocks = %v, want %d", capacity, blocksOf(&x), want)
		}
		if age, full := x.Age(now); full && age < 0 {
			t.Errorf("age = %v", age)
		}
		x.Record([]uint64{4, 5}, 2, now)
	}
	var empty Index
	if b := empty.Blocks(); b.Len() != 0 || len(blocksOf(&empty)) != 0 {
		t.Error("an empty index has blocks")
	}
}
