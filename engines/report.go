// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import "encoding/json"

// Number is a value that an engine may not report. The zero value is unknown,
// which is not 0.
type Number struct {
	Value float64
	Known bool
}

// Known returns a number that is known.
func Known(value float64) Number { return Number{Value: value, Known: true} }

// Report is what one scrape of /metrics says. Where several data-parallel
// engines stand behind one address it speaks for all of them.
type Report struct {
	// Running and Waiting are the requests in the engine: in the batch, and not
	// yet. Several engines are added up.
	Running, Waiting Number

	// KVUsage is the part of the KV cache that running requests hold, from 0
	// to 1: the mean of several engines.
	KVUsage Number

	// KVTokens is how many tokens the KV cache holds, of all engines together.
	// It is not 0 if it is known.
	KVTokens Number

	// Computed, Generated, PrefixQueries and PrefixHits are counters in
	// tokens: prompt tokens that were prefilled, tokens that were put out, and
	// prompt tokens looked for and found in the prefix cache. Several engines
	// are added up.
	//
	// Versions that do not tell prompt tokens by source count the cached ones
	// in Computed too. Some count a request that waits in PrefixQueries and
	// PrefixHits again and again.
	Computed, Generated, PrefixQueries, PrefixHits Number

	// Started is when the process started, in seconds of Unix time.
	Started Number

	// Asleep says that all engines behind the address are known to sleep.
	Asleep bool

	// Models are the models that the series are labelled with, in order and at
	// most 64. Adapters are not among them, nor are other names that a model is
	// served under.
	Models []string
}

// Model is one entry of /v1/models.
type Model struct {
	// ID is the name that requests use.
	ID string

	// JSON is the whole entry as the engine wrote it.
	JSON json.RawMessage
}

// Usage is what a response says of its prompt.
type Usage struct {
	// PromptTokens is the length of the prompt, cached tokens included: from 1
	// to 100 million.
	PromptTokens int

	// CachedTokens is how many of them came from the prefix cache, at most
	// PromptTokens. Engines leave it out by default.
	CachedTokens Number
}
