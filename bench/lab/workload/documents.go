// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

// Documents is the workload of questions about shared documents, without
// sessions. The n-th document is asked about 1/n times as often as the first.
// Documents have 20,000 to 60,000 tokens, a question 100 to 800 and its answer
// 50 to 500.
type Documents struct {
	// Rate is how many questions come per second.
	Rate float64
	// Count is the number of documents.
	Count int
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects documents and questions.
	Seed uint64
}

// Arrivals returns the questions.
func (d Documents) Arrivals() Arrivals {
	lengths := make([]int, d.Count)
	sums := make([]float64, d.Count)
	r, sum := random(useText, d.Seed), 0.0
	for i := range lengths {
		lengths[i] = 20_000 + r.IntN(40_001)
		sum += 1 / float64(i+1)
		sums[i] = sum
	}
	return Poisson(d.Rate, d.Seed, func(seed uint64) *Script {
		r := random(seed)
		which, at := 0, r.Float64()*sum
		for sums[which] < at {
			which++
		}
		length := lengths[which]
		t := newText(d.BlockTokens, mix(useText, d.Seed, uint64(which)), length, seed)
		return Single(t.request(length+int(logUniform(r, 100, 800)), int(logUniform(r, 50, 500))))
	})
}

// HotDocument is a workload in which every request asks about the same document
// of 40,000 tokens and brings 500 to 32,000 tokens of its own. Answers have 50
// to 200 tokens. A rule that only looks for the document keeps it on one engine,
// one that never does reads it no more than once on each.
type HotDocument struct {
	// Rate is how many requests come per second.
	Rate float64
	// BlockTokens is the length of a block.
	BlockTokens int
	// Seed selects the requests.
	Seed uint64
}

// Arrivals returns the requests.
func (h HotDocument) Arrivals() Arrivals {
	const length = 40_000
	document := mix(useText, h.Seed)
	return Poisson(h.Rate, h.Seed, func(seed uint64) *Script {
		r := random(seed)
		t := newText(h.BlockTokens, document, length, seed)
		return Single(t.request(length+int(logUniform(r, 500, 32_000)), int(logUniform(r, 50, 200))))
	})
}
