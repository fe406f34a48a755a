// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"runtime"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// chain spells a prompt with one block to the letter: the hash of a block
// stands for the block and everything before it, so "abc" and "abd" share two.
func chain(prompt string) []uint64 {
	hashes := make([]uint64, len(prompt))
	h := uint64(14695981039346656037)
	for i := range len(prompt) {
		h = (h ^ uint64(prompt[i])) * 1099511628211
		hashes[i] = h
	}
	return hashes
}

// sound fails the test unless the list, the map and the free list of x agree.
func sound(t *testing.T, x *Index) {
	t.Helper()
	if x.Len() > x.Capacity()+x.Capacity()/4 {
		t.Fatalf("Len() = %v, want at most %v", x.Len(), x.Capacity()+x.Capacity()/4)
	}
	if x.slots == nil {
		return
	}
	listed, newer := 0, int32(none)
	for at := x.newest; at != none; at = x.entries[at].older {
		e := x.entries[at]
		if e.newer != newer || x.slots[e.hash] != at {
			t.Fatalf("entry %d is linked wrongly", at)
		}
		newer = at
		listed++
	}
	if x.oldest != newer || listed != x.Len() {
		t.Fatalf("%v blocks are listed, want %v", listed, x.Len())
	}
	free := 0
	for at := x.free; at != none; at = x.entries[at].older {
		free++
	}
	if free+listed != len(x.entries) {
		t.Fatalf("%v entries are free and %v used, want %v together", free, listed, len(x.entries))
	}
}

func TestMatch(t *testing.T) {
	tests := []struct {
		name     string
		capacity int
		recorded []string
		prompt   string
		want     int
	}{
		{"nothing recorded", 10, nil, "abc", 0},
		{"nothing asked", 10, []string{"abc"}, "", 0},
		{"the same", 10, []string{"abc"}, "abc", 3},
		{"a continuation", 10, []string{"abc"}, "abcdef", 3},
		{"a beginning", 10, []string{"abcdef"}, "abc", 3},
		{"another ending", 10, []string{"abcdef"}, "abcxyz", 3},
		{"another beginning", 10, []string{"abcdef"}, "xbcdef", 0},
		{"the better of two", 10, []string{"abxx", "abcd"}, "abce", 3},
		{"no room at all", 0, []string{"abc"}, "abc", 0},
		{"longer than the room", 4, []string{"abcdefgh"}, "abcdefgh", 4},
		{"exactly the room", 4, []string{"abcd"}, "abcd", 4},
		{"the ends go first", 6, []string{"abcd", "wxyz"}, "abcd", 2},
		{"the newer stays whole", 6, []string{"abcd", "wxyz"}, "wxyz", 4},
		{"use makes young", 6, []string{"abcd", "wx", "abcd", "12"}, "abcd", 4},
		{"the unused goes", 6, []string{"abcd", "wx", "abcd", "12"}, "wx", 0},
		{"a shared beginning stays", 6, []string{"abcd", "abxy", "12"}, "abcd", 2},
		{"an evicted end comes back", 4, []string{"abcd", "xy", "abcd"}, "abcd", 4},
		{"longer than the room and half held", 4, []string{"ab", "xy", "abcdefgh"}, "abcdefgh", 4},
		{"one block of room", 1, []string{"abc", "xyz"}, "xyz", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var x Index
			x.Resize(test.capacity)
			for i, prompt := range test.recorded {
				settled(&x, chain(prompt), Owner(i+1), start.Add(time.Duration(i)))
				sound(t, &x)
			}
			if got := x.Match(chain(test.prompt)); got != test.want {
				t.Errorf("Match(%q) after %q = %v, want %v", test.prompt, test.recorded, got, test.want)
			}
		})
	}
}

func TestTakeBack(t *testing.T) {
	type step struct {
		record string
		by     Owner

		// back is the owner whose chain is taken back
		back Owner
	}
	record := func(by Owner, prompt string) step { return step{record: prompt, by: by} }
	back := func(owner Owner) step { return step{back: owner} }
	tests := []struct {
		name  string
		steps []step
		want  map[string]int
	}{
		{"alone", []step{record(1, "abcd"), back(1)}, map[string]int{"abcd": 0}},
		{"what was there before stays", []step{record(1, "ab"), record(2, "abcd"), back(2)}, map[string]int{"abcd": 2}},
		{"the same was there before", []step{record(1, "abcd"), record(2, "abcd"), back(2)}, map[string]int{"abcd": 4}},
		{"a sibling recorded after", []step{record(1, "abcd"), record(2, "abxy"), back(1)}, map[string]int{"abcd": 2, "abxy": 4}},
		{"the sibling fails", []step{record(1, "abcd"), record(2, "abxy"), back(2)}, map[string]int{"abcd": 4, "abxy": 2}},
		{"the sibling fails first, then both", []step{record(1, "abcd"), record(2, "abxy"), back(2), back(1)}, map[string]int{"abcd": 0, "abxy": 0}},
		{"the sibling fails last", []step{record(1, "abcd"), record(2, "abxy"), back(1), back(2)}, map[string]int{"abcd": 0, "abxy": 0}},
		{"the first of three fails", []step{record(1, "abcd"), record(2, "abcd"), record(3, "abcd"), back(1)}, map[string]int{"abcd": 4}},
		{"two of three fail, the middle one stays", []step{record(1, "abcd"), record(2, "abcd"), record(3, "abcd"), back(3), back(1)}, map[string]int{"abcd": 4}},
		{"two of three fail in the other order", []step{record(1, "abcd"), record(2, "abcd"), record(3, "abcd"), back(1), back(3)}, map[string]int{"abcd": 4}},
		{"three fail", []step{record(1, "abcd"), record(2, "abcd"), record(3, "abcd"), back(3), back(1), back(2)}, map[string]int{"abcd": 0}},
		{"two of three of several lengths fail", []step{record(1, "abcde"), record(2, "abc"), record(3, "ab"), back(3), back(1)}, map[string]int{"abcde": 3, "abc": 3, "ab": 2}},
		{"evicted meanwhile", []step{record(1, "abcd"), record(2, "01234567"), back(1)}, map[string]int{"abcd": 0, "01234567": 8}},
		{"evicted and recorded again by another", []step{record(1, "abcd"), record(2, "01234567"), record(3, "abcd"), back(1)}, map[string]int{"abcd": 4}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var x Index
			x.Resize(8)
			recorded := map[Owner]string{}
			for i, s := range test.steps {
				if s.back != 0 {
					x.TakeBack(chain(recorded[s.back]), s.back)
				} else {
					recorded[s.by] = s.record
					settled(&x, chain(s.record), s.by, start.Add(time.Duration(i)))
				}
				sound(t, &x)
			}
			for prompt, want := range test.want {
				if got := x.Match(chain(prompt)); got != want {
					t.Errorf("Match(%q) = %v, want %v", prompt, got, want)
				}
				for i, hash := range chain(prompt) {
					if _, held := x.slots[hash]; held != (i < want) {
						t.Errorf("block %d of %q is held: %v, want %v", i, prompt, held, i < want)
					}
				}
			}
		})
	}
}

func TestAge(t *testing.T) {
	tests := []struct {
		name     string
		capacity int
		recorded []string
		want     time.Duration
		full     bool
	}{
		{"nothing recorded", 10, nil, 0, false},
		{"no room", 0, []string{"a"}, 0, false},
		{"under nine tenths", 10, []string{"abcd", "wxyz"}, 0, false},
		{"nine tenths", 10, []string{"abcd", "12345"}, 100 * time.Second, true},
		{"full", 4, []string{"ab", "cd"}, 100 * time.Second, true},
		{"the oldest went", 4, []string{"ab", "cd", "ef"}, 99 * time.Second, true},
		{"use makes young", 4, []string{"ab", "cd", "ab"}, 99 * time.Second, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var x Index
			x.Resize(test.capacity)
			for i, prompt := range test.recorded {
				settled(&x, chain(prompt), Owner(i+1), start.Add(time.Duration(i)*time.Second))
			}
			if age, full := x.Age(start.Add(100 * time.Second)); age != test.want || full != test.full {
				t.Errorf("Age() = %v, %v, want %v, %v", age, full, test.want, test.full)
			}
		})
	}
}

func TestResize(t *testing.T) {
	var x Index
	settled(&x, chain("abc"), 1, start)
	if x.Len() != 0 || x.Capacity() != 0 {
		t.Errorf("the zero index holds %v of %v blocks, want none", x.Len(), x.Capacity())
	}
	steps := []struct {
		name   string
		blocks int
		record string
		len    int
		want   map[string]int
	}{
		{"room", 8, "abcdef", 6, map[string]int{"abcdef": 6}},
		{"less room takes the end", 4, "", 4, map[string]int{"abcdef": 4}},
		{"more room brings nothing back", 6, "", 4, map[string]int{"abcdef": 4}},
		{"and can be used", 6, "xy", 6, map[string]int{"abcdef": 4, "xy": 2}},
		{"no room", 0, "abc", 0, map[string]int{"abcdef": 0, "xy": 0}},
		{"less than no room", -5, "abc", 0, map[string]int{"abcdef": 0}},
		{"room again", 3, "abcd", 3, map[string]int{"abcd": 3}},
		{"more than fits a link", 1 << 40, "abcd", 4, map[string]int{"abcd": 4}},
	}
	for i, s := range steps {
		x.Resize(s.blocks)
		settled(&x, chain(s.record), Owner(i+1), start.Add(time.Duration(i)))
		sound(t, &x)
		if x.Len() != s.len {
			t.Errorf("%s: Len() = %v, want %v", s.name, x.Len(), s.len)
		}
		for prompt, want := range s.want {
			if got := x.Match(chain(prompt)); got != want {
				t.Errorf("%s: Match(%q) = %v, want %v", s.name, prompt, got, want)
			}
		}
	}
}

func TestClear(t *testing.T) {
	var x Index
	x.Clear()
	x.Resize(4)
	settled(&x, chain("abcd"), 1, start)
	x.Clear()
	x.TakeBack(chain("abcd"), 1)
	if x.Len() != 0 || x.Capacity() != 4 || x.Match(chain("abcd")) != 0 {
		t.Errorf("Clear() left %v of %v blocks, want 0 of 4", x.Len(), x.Capacity())
	}
	if age, full := x.Age(start); full {
		t.Errorf("Age() after Clear() = %v, %v, want none", age, full)
	}
	settled(&x, chain("xy"), 2, start)
	if got := x.Match(chain("xy")); got != 2 {
		t.Errorf("Match() after Clear() = %v, want 2", got)
	}
	sound(t, &x)
}

// long returns chain number n of the given length.
func long(n, blocks int) []uint64 {
	hashes := make([]uint64, blocks)
	h := uint64(n)*0x9e3779b97f4a7c15 + 1
	for i := range hashes {
		h ^= h >> 30
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 27
		h *= 0x94d049bb133111eb
		h ^= h >> 31
		hashes[i] = h
	}
	return hashes
}

// BenchmarkMemory fills an index of the default capacity and keeps it full
// for as many blocks again, and reports what one block takes.
func BenchmarkMemory(b *testing.B) {
	const blocks, prompt = 15_625, 125
	chains := make([][]uint64, 2*blocks/prompt)
	for i := range chains {
		chains[i] = long(i, prompt)
	}
	var before, after runtime.MemStats
	var used uint64
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		var x Index
		x.Resize(blocks)
		for i, c := range chains {
			settled(&x, c, Owner(i+1), start)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		used = after.HeapAlloc - before.HeapAlloc
		if x.Len() != blocks {
			b.Fatalf("Len() = %v, want %v", x.Len(), blocks)
		}
	}
	b.ReportMetric(float64(used)/blocks, "bytes/block")
}

func BenchmarkMatch(b *testing.B) {
	var x Index
	x.Resize(15_625)
	settled(&x, long(1, 500), 1, start)
	c := long(1, 500)
	b.ReportAllocs()
	for b.Loop() {
		x.Match(c)
	}
}

func BenchmarkRecord(b *testing.B) {
	benchmarks := []struct {
		name   string
		chains int
	}{{"warm", 1}, {"cold", 1000}}
	for _, bench := range benchmarks {
		b.Run(bench.name, func(b *testing.B) {
			chains := make([][]uint64, bench.chains)
			for i := range chains {
				chains[i] = long(i, 500)
			}
			var x Index
			x.Resize(15_625)
			for i, c := range chains {
				settled(&x, c, Owner(i+1), start)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				settled(&x, chains[i%len(chains)], Owner(i+1), start)
			}
		})
	}
}

// settled records a chain that reaches the engine.
func settled(x *Index, chain []uint64, owner Owner, now time.Time) {
	x.Record(chain, owner, now)
	x.Settle()
}

// A client that repeats a prompt which the engine refuses must not push out
// what the engine has: until a placement is known to have reached it, its blocks
// are held beside the others.
func TestRefusedPromptsEvictNothing(t *testing.T) {
	var x Index
	x.Resize(100)
	kept, refused := long(1, 100), long(2, 25)
	settled(&x, kept, 1, start)
	for i := range 50 {
		owner := Owner(i + 2)
		x.Record(refused, owner, start.Add(time.Second))
		x.TakeBack(refused, owner)
	}
	if got := x.Match(kept); got != 100 {
		t.Errorf("Match() = %v after prompts that were taken back, want 100", got)
	}
	x.Record(refused, 99, start.Add(time.Second))
	if got := x.Len(); got != 125 {
		t.Errorf("Len() = %v before Settle, want 125", got)
	}
	x.Record(long(3, 25), 100, start.Add(time.Second))
	if got := x.Len(); got != 125 {
		t.Errorf("Len() = %v with nothing settled, want at most 125", got)
	}
	x.Settle()
	if got := x.Len(); got != 100 {
		t.Errorf("Len() = %v after Settle, want 100", got)
	}
}
