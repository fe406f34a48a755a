// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

// Unshared is a workload in which no prompt has anything in common with
// another one: 500 to 32,000 tokens, answered with 50 to 500. There is nothing
// for a prefix cache to find.
type Unshared struct {
	// Rate is how many requests come per second.
	Rate float64
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the requests.
	Seed uint64
}

// Arrivals returns the requests.
func (u Unshared) Arrivals() Arrivals {
	return Poisson(u.Rate, u.Seed, func(seed uint64) *Script {
		r := random(seed)
		prompt, output := logUniform(r, 500, 32_000), logUniform(r, 50, 500)
		return Single(newText(u.BlockTokens, 0, 0, seed).request(int(prompt), int(output)))
	})
}

// LongOutputs is a workload of short prompts, 200 to 2,000 tokens that nothing
// else shares. Three of ten are answered with 32,000 tokens of reasoning, the
// others with 200 to 2,000. A router cannot tell which.
type LongOutputs struct {
	// Rate is how many requests come per second.
	Rate float64
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the requests.
	Seed uint64
}

// Arrivals returns the requests.
func (l LongOutputs) Arrivals() Arrivals {
	return Poisson(l.Rate, l.Seed, func(seed uint64) *Script {
		r := random(seed)
		prompt, output := logUniform(r, 200, 2000), logUniform(r, 200, 2000)
		if r.IntN(10) < 3 {
			output = 32_000
		}
		return Single(newText(l.BlockTokens, 0, 0, seed).request(int(prompt), int(output)))
	})
}
