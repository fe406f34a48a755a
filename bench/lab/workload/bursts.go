// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

import "time"

// Bursts is a workload of many requests at once: Size of them at the same
// moment, Rate times per second at equal distances. The prompts of one burst
// begin with Shared tokens in common and go on with Own that differ; answers
// have 200 tokens. The first burst comes after a single request for what the
// bursts share, so that one engine holds it.
type Bursts struct {
	// Rate is how many bursts come per second.
	Rate float64
	// Size is how many requests are in one burst.
	Size int
	// Shared and Own are the parts of a prompt, in tokens.
	Shared, Own int
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the texts.
	Seed uint64
}

// Arrivals returns the requests.
func (b Bursts) Arrivals() Arrivals {
	const output = 200
	source := mix(useText, b.Seed)
	every := seconds(1 / b.Rate)
	n := 0
	if b.Shared == 0 {
		n = 1 // nothing to hold
	}
	return func() (time.Duration, *Script, bool) {
		writer := mix(useClient, b.Seed, uint64(n))
		if n++; n == 1 {
			return 0, Single(newText(b.BlockTokens, source, b.Shared, writer).request(b.Shared+1, 1)), true
		}
		burst := (n-2)/b.Size + 1
		r := newText(b.BlockTokens, source, b.Shared, writer).request(b.Shared+b.Own, output)
		return time.Duration(burst) * every, Single(r), true
	}
}
