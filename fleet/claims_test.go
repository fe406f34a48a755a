// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import "testing"

// What is taken back of a prompt is what its router was heard to say, once: what
// others say of the same blocks stays, whatever comes twice or not at all.
func TestOthersBlocksStay(t *testing.T) {
	tests := []struct {
		name string
		// placed and gone are how often the two messages come
		placed, gone int
		placedAgain  bool
		// more is how many blocks longer their prompt is than ours
		more int
	}{
		{"both", 1, 1, false, 5},
		{"both, of the same prompt", 1, 1, false, 0},
		{"gone twice", 1, 2, false, 0},
		{"placed twice", 2, 1, false, 5},
		{"never placed", 0, 1, false, 0},
		{"placed late", 0, 1, true, 5},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			beds := shared(2, 1)
			a, b := beds[0], beds[1]
			ours, theirs := text(1, 10*BlockTokens, 0, 0), text(1, 10*BlockTokens, 2, test.more*BlockTokens)
			b.serve(prompt(10*BlockTokens, ours), 0)
			p, _ := a.place(prompt(len(theirs)*BlockTokens, theirs), 0)
			placed := a.told()
			for range test.placed {
				b.Hear(1, placed, b.now)
			}
			p.End(CauseError, a.now)
			gone := a.told()
			for range test.gone {
				b.Hear(1, gone, b.now)
			}
			if test.placedAgain {
				b.Hear(1, placed, b.now)
			}
			if got := b.view(t, 0).PrefixBlocks; got != 10 {
				t.Errorf("%d blocks are known, want the 10 that the router has placed itself", got)
			}
		})
	}
}

// The claims that can be taken back are bounded, and the newest stay.
func TestClaimsAreBounded(t *testing.T) {
	var c claims
	for i := range 3 * mostClaims / 2 {
		c.note(claim{1, "a", uint64(i)})
	}
	if len(c.open) != mostClaims || len(c.order) != mostClaims {
		t.Errorf("%d claims in a ring of %d, want %d", len(c.open), len(c.order), mostClaims)
	}
	if c.take(claim{1, "a", 1}) || !c.take(claim{1, "a", 3*mostClaims/2 - 1}) || c.take(claim{1, "a", 3*mostClaims/2 - 1}) {
		t.Error("the oldest is there, or the newest is not or twice")
	}
}

// A message that comes once more does not bring an older prompt of a session back.
func TestOlderSizeIsPassedOver(t *testing.T) {
	beds := shared(2, 2)
	a, b := beds[0], beds[1]
	b.serve(turn(7, 1000), 0)
	old := b.told()
	a.Hear(2, old, a.now)
	a.serve(turn(7, 9000), 0)
	a.Hear(2, old, a.now)
	if got := a.sessions.Find(7).Size; got != 9000 {
		t.Errorf("the session's prompt has %d tokens, want 9000", got)
	}
}

// A prompt that goes on with a long one is as much work as that: the lock is let
// go for all of it.
func TestStepsOfAPromptThatIsHeard(t *testing.T) {
	b := shared(1, 1)[0]
	b.place(Request{})
	name, blocks := b.pool.Names()[0], text(1, 100*BlockTokens, 0, 0)
	for _, test := range []struct {
		name   string
		blocks Blocks
		want   int
	}{
		{"a whole prompt", Blocks{Upstream: name, Hashes: blocks[:90]}, 91},
		{"one that goes on", Blocks{Upstream: name, After: blocks[89], Hashes: blocks[90:]}, 1 + 2*90 + 10},
		{"the same one", Blocks{Upstream: name, After: blocks[99]}, 1 + 2*100},
		{"one that goes on with what is not held", Blocks{Upstream: name, After: 7, Hashes: blocks[:5]}, 1 + 5},
		{"one that is gone", Blocks{Upstream: name, After: blocks[99], Gone: true}, 1 + 100},
		{"one that nobody has told", Blocks{Upstream: name, After: blocks[9], Gone: true}, 1},
	} {
		if got := b.hearBlocks(9, &test.blocks, b.now, 0); got != test.want {
			t.Errorf("%s: %d steps, want %d", test.name, got, test.want)
		}
	}
}
