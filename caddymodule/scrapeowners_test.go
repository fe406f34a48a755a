// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"sync"
	"testing"
)

// owns returns which of the claims owns its upstream, -1 for none of them.
func owns(claims ...*scrapeClaim) int {
	for i, c := range claims {
		if c.owners.byName[c.name] == nil {
			continue
		}
		if _, own := c.turn(); own {
			return i
		}
	}
	return -1
}

// The last to have started owns an upstream, whenever it claims it.
func TestScrapeOwners(t *testing.T) {
	o := newScrapeOwners()
	other := o.claim("b", 9)
	want := func(step string, want int, claims ...*scrapeClaim) {
		t.Helper()
		if got := owns(claims...); got != want {
			t.Errorf("%s: claim %d owns the upstream, want %d", step, got, want)
		}
	}
	second := o.claim("a", 2)
	want("alone", 0, second)
	first := o.claim("a", 1)
	want("an earlier start claims later", 1, first, second)
	third := o.claim("a", 3)
	want("a later start", 2, first, second, third)
	second.release()
	want("one in the middle leaves", 1, first, third)
	again := o.claim("a", 3)
	want("the same start again", 1, third, again)
	third.release()
	want("its first claim leaves", 0, again)
	again.release()
	want("the owner leaves", 0, first)
	first.release()
	want("another upstream", 0, other)
	other.release()
	if len(o.byName) != 0 {
		t.Errorf("%d upstreams are still claimed", len(o.byName))
	}
}

// What was asked for in an earlier turn is not delivered, even where its owner
// has the turn again.
func TestScrapeDelivery(t *testing.T) {
	o := newScrapeOwners()
	delivered := func(c *scrapeClaim, turn uint64) (yes bool) {
		c.deliver(turn, func() { yes = true })
		return yes
	}
	old := o.claim("a", 1)
	before, _ := old.turn()
	if !delivered(old, before) {
		t.Error("the owner's answer is not delivered")
	}
	other := o.claim("b", 5)
	if !delivered(old, before) {
		t.Error("a claim on another upstream ends the turn")
	}
	newer := o.claim("a", 2)
	now, _ := newer.turn()
	if delivered(old, before) || !delivered(newer, now) {
		t.Error("the turn does not go to the newer claim")
	}
	newer.release()
	if delivered(newer, now) || delivered(old, before) {
		t.Error("an answer of an earlier turn is delivered")
	}
	if after, own := old.turn(); !own || !delivered(old, after) {
		t.Error("the turn does not go back to the older claim")
	}
	old.release()
	other.release()
	if delivered(old, before) {
		t.Error("an answer for an upstream that nobody claims is delivered")
	}
}

func TestScrapeOwnersConcurrently(t *testing.T) {
	o := newScrapeOwners()
	var wg sync.WaitGroup
	running, most := 0, 0
	for started := range 8 {
		wg.Go(func() {
			for range 500 {
				c := o.claim("a", uint64(started))
				if turn, own := c.turn(); own {
					c.deliver(turn, func() {
						running++
						most = max(most, running)
						running--
					})
				}
				c.release()
			}
		})
	}
	wg.Wait()
	if most != 1 || len(o.byName) != 0 {
		t.Errorf("%d deliveries at once and %d upstreams left, want 1 and 0", most, len(o.byName))
	}
}
