// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// blocks returns a chain of n block hashes that shares nothing with the chain of another seed.
func blocks(seed uint64, n int) []uint64 {
	chain := make([]uint64, n)
	h := seed*0x9e3779b97f4a7c15 + 1
	for i := range chain {
		h = (h ^ h>>29) * 0xbf58476d1ce4e5b9
		chain[i] = h
	}
	return chain
}
