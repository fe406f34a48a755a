// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// ServerConfig describes one simulated server. The zero value is a server of one model at the speed of real time.
type ServerConfig struct {
	// Engine describes the engine. Its seed also selects the words of the answers and the ids of responses.
	Engine Config

	// Models are the names of the model that is served, as with --served-model-name. Default "sim-model". The first one
	// labels the metrics and answers requests that name no model.
	Models []string

	// Speed divides every duration of the engine: 10 is ten times faster than real time. Default 1.
	Speed float64

	// OutputTokens is the length of an answer whose request sets no limit. Default 64.
	OutputTokens int

	// MaxOutputTokens is the length of the longest answer, whatever the request allows. Default 1,024. An answer cut
	// here ends with "stop", one cut by the request's own limit with "length".
	MaxOutputTokens int

	// MaxModelTokens is the context length, at most the engine's KV capacity. Default 262,144. A longer prompt is an
	// error with status 400.
	MaxModelTokens int

	// NoUsageDetails leaves the numbers of cached tokens out of usage, like vLLM without --enable-prompt-tokens-details.
	NoUsageDetails bool

	// EngineIndex is the value of the engine label of the metrics.
	EngineIndex int

	// RecordBodies is how many request bodies are kept for [Server.Requests]. Default 0.
	RecordBodies int
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.Engine = c.Engine.withDefaults()
	if len(c.Models) == 0 {
		c.Models = []string{"sim-model"}
	}
	if c.Speed <= 0 {
		c.Speed = 1
	}
	setDefault(&c.OutputTokens, 64)
	setDefault(&c.MaxOutputTokens, 1024)
	setDefault(&c.MaxModelTokens, 262_144)
	c.MaxModelTokens = min(c.MaxModelTokens, c.Engine.KVTokens)
	return c
}
