// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "time"

// Config describes one engine. The zero value is an engine with the defaults named at each field; a field that is zero
// or negative takes its default.
type Config struct {
	// BlockTokens is the number of tokens in a KV block, the unit of sharing. Default 16. Larger blocks make long
	// traces faster to replay and lose up to one block of sharing per prompt.
	BlockTokens int

	// KVTokens is the capacity of the KV cache in tokens, rounded down to whole blocks. Default 600,000.
	KVTokens int

	// MaxSeqs is the number of requests that run at once. Default 256.
	MaxSeqs int

	// BatchTokens is the number of tokens that one step computes at most. Default 8,192.
	BatchTokens int

	// StepTime is the fixed part of a step's duration. Default 6 ms.
	StepTime time.Duration

	// PrefillRate is the number of prefill tokens computed per second. Default 12,000.
	PrefillRate float64

	// DecodeContextRate is the number of context tokens of decoding requests read per second. Default 50,000,000: one
	// millisecond per 50,000 tokens.
	DecodeContextRate float64

	// NoPrefixCache switches the prefix cache off: nothing is ever found in it.
	NoPrefixCache bool

	// Jitter spreads the duration of a step evenly over 1 - Jitter to 1 + Jitter times its value. Default 0, at most 1.
	Jitter float64

	// Seed selects the sequence that Jitter draws from. Engines with equal configs and equal calls give equal results.
	Seed uint64
}

// withDefaults returns the config with every unset field replaced by its default.
func (c Config) withDefaults() Config {
	setDefault(&c.BlockTokens, 16)
	setDefault(&c.KVTokens, 600_000)
	setDefault(&c.MaxSeqs, 256)
	setDefault(&c.BatchTokens, 8192)
	setDefault(&c.StepTime, 6*time.Millisecond)
	setDefault(&c.PrefillRate, 12_000)
	setDefault(&c.DecodeContextRate, 50_000_000)
	c.Jitter = min(max(c.Jitter, 0), 1)

	// at least one block, so that the smallest request can run
	c.KVTokens = max(c.KVTokens/c.BlockTokens, 1) * c.BlockTokens
	return c
}

func setDefault[T int | float64 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
