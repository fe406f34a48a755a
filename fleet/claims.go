// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package fleet

// mostClaims is how many prompts of other routers can be taken back: more than
// wait for their first output at a time. With all of them they take about 2 MiB.
const mostClaims = 1 << 14

// claim is what another router has said of the prompt that ends with a block.
type claim struct {
	router   uint64
	upstream string
	last     uint64
}

// claims are the prompts that were heard of lately, and not taken back. What was
// not heard is not taken back either: it would be taken from others, which hold
// the same blocks. The zero value is empty and ready.
type claims struct {
	open map[claim]int

	// order has the claims as they came. Once it is full it is a ring in which
	// next is the oldest.
	order []claim
	next  int
}

// note adds a claim. When there is one too many, the oldest goes.
func (c *claims) note(added claim) {
	if c.open == nil {
		c.open = make(map[claim]int)
	}
	if len(c.order) < mostClaims {
		c.order = append(c.order, added)
	} else {
		c.take(c.order[c.next])
		c.order[c.next] = added
		c.next = (c.next + 1) % mostClaims
	}
	c.open[added]++
}

// take takes a claim away, and reports that there was one.
func (c *claims) take(old claim) bool {
	n := c.open[old]
	if n > 1 {
		c.open[old] = n - 1
	} else {
		delete(c.open, old)
	}
	return n > 0
}
