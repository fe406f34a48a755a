// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prefixes

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// tell lets another index hear of a chain that x has recorded.
func tell(x, other *Index, c []uint64, owner Owner, now time.Time) (heard bool) {
	c = c[:min(len(c), x.Capacity())]
	held := x.Record(c, owner, now)
	after := uint64(0)
	if held > 0 {
		after = c[held-1]
	}
	_, heard = other.Extend(after, c[held:], owner, now)
	return heard
}

func TestExtend(t *testing.T) {
	tests := []struct {
		name     string
		capacity int
		recorded []string // by the index itself
		told     []string
		prompt   string
		want     int
	}{
		{"a whole chain", 10, nil, []string{"abc"}, "abcd", 3},
		{"a chain that grows", 10, nil, []string{"abc", "abcdef"}, "abcdefg", 6},
		{"a chain that was its own", 10, []string{"abc"}, []string{"abc", "abcdef"}, "abcdef", 6},
		{"another ending", 10, nil, []string{"abcd", "abxy"}, "abxyz", 4},
		{"over the room", 4, nil, []string{"abcdefgh"}, "abcdefgh", 4},
		{"over the room in parts", 5, nil, []string{"abcd", "abcdefgh"}, "abcdefgh", 5},
		{"use makes young", 5, []string{"abc"}, []string{"xy", "abc", "v"}, "abc", 3},
		{"the unused goes", 5, []string{"abc"}, []string{"xy", "abc", "v"}, "xy", 1},
		{"all of the chain is used", 8, nil, []string{"abcd", "wx", "abcdef", "1234"}, "abcdef", 4},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var x, other Index
			x.Resize(100)
			other.Resize(test.capacity)
			owner := Owner(0)
			for _, prompt := range test.recorded {
				owner++
				x.Record(chain(prompt), owner, start)
				other.Record(chain(prompt), owner, start)
			}
			for i, prompt := range test.told {
				owner++
				tell(&x, &other, chain(prompt), owner, start.Add(time.Duration(i)))
				other.Settle()
				sound(t, &other)
			}
			if got := other.Match(chain(test.prompt)); got != test.want {
				t.Errorf("Match(%s) = %v, want %v", test.prompt, got, test.want)
			}
		})
	}
}

// What is heard of the past makes no block older than those used before it, for
// they are evicted in that order.
func TestExtendInThePast(t *testing.T) {
	var x Index
	x.Resize(4)
	x.Extend(0, chain("ab"), 1, start.Add(-time.Hour))
	x.Settle()
	x.Extend(0, chain("c"), 2, start.Add(-30*time.Minute))
	x.Settle()
	x.Extend(0, chain("d"), 3, start.Add(-40*time.Minute))
	x.Settle()
	for i, want := range []time.Duration{time.Hour, time.Hour, 30 * time.Minute, 30 * time.Minute, 0} {
		if age, full := x.Age(start); age != want || !full {
			t.Errorf("after %d blocks the oldest is of %v ago, want %v", i, age, want)
		}
		x.Record(chain(string(rune('p'+i))), Owner(4+i), start)
		x.Settle()
		sound(t, &x)
	}
}

// What follows a block that is not held cannot be matched, and is not kept.
func TestExtendNeedsItsBeginning(t *testing.T) {
	var x Index
	x.Resize(10)
	c := chain("abcdef")
	if _, held := x.Extend(c[2], c[3:], 1, start); held || x.Len() != 0 || x.Holds(c[3]) {
		t.Errorf("a chain without its beginning is held: %d blocks", x.Len())
	}
	if depth, held := x.Extend(0, c[:3], 2, start); depth != 0 || !held {
		t.Errorf("Extend() = %d, %v of a whole chain, want 0, true", depth, held)
	}
	if depth, held := x.Extend(c[2], c[3:], 3, start); depth != 3 || !held || x.Match(c) != 6 || !x.Holds(c[5]) {
		t.Errorf("Extend() = %d, %v, Match() = %d after both parts, want 3, true and 6", depth, held, x.Match(c))
	}
	if depth := x.Withdraw(c[5]); depth != 6 {
		t.Errorf("Withdraw() = %d, want 6", depth)
	}
	if got := x.Match(c); got != 3 {
		t.Errorf("Match() = %d after the second part was taken back, want 3", got)
	}
	x.Withdraw(c[5])
	x.Withdraw(c[2])
	if x.Len() != 0 {
		t.Errorf("%d blocks are left, want none", x.Len())
	}
	sound(t, &x)
}

// Two indexes that tell each other of all that they record hold the same, as long
// as nothing has to go.
func TestIndexesThatTellAreEqual(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var x [2]Index
		x[0].Resize(1000)
		x[1].Resize(1000)
		type placement struct {
			at    int
			chain []uint64
			owner Owner
		}
		var open []placement
		for owner := Owner(1); owner < 200; owner++ {
			now := start.Add(time.Duration(owner))
			at := r.IntN(2)
			if len(open) > 0 && r.IntN(4) == 0 {
				i := r.IntN(len(open))
				p := open[i]
				open = slices.Delete(open, i, i+1)
				if r.IntN(2) == 0 {
					x[p.at].TakeBack(p.chain, p.owner)
					x[1-p.at].Withdraw(p.chain[len(p.chain)-1])
				}
			} else {
				letters := make([]byte, 1+r.IntN(8))
				for i := range letters {
					letters[i] = byte(r.IntN(2))
				}
				c := chain(string(letters))
				if !tell(&x[at], &x[1-at], c, owner, now) {
					t.Fatal("what one has told the other does not know")
				}
				open = append(open, placement{at, c, owner})
			}
			sound(t, &x[0])
			sound(t, &x[1])
			first, second := x[0].Blocks(), x[1].Blocks()
			if a, b := slices.Collect(first.All()), slices.Collect(second.All()); !slices.Equal(a, b) {
				t.Fatalf("seed %d: after %d placements one holds %v and the other %v", seed, owner, a, b)
			}
		}
	}
}
