// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

// ServerConfig describes one simulated server. The zero value is a server of one model at the speed of real time.
type ServerConfig struct {
	// Engine describes the engine. Its seed also selects the words of the answers and the ids of responses.
	Engine Config

	// Models are the names of the model that is served, as with --served-model-name. Default "sim-model". The first one
	// labels the metrics and answers requests that name no model. [Server.SetModels] changes them.
	Models []string

	// Speed divides every duration of the engine: 10 is ten times faster than real time. Default 1.
	Speed float64

	// BytesPerToken is the tokenizer: how many bytes of text make a token, 1 to 100, rounded to thousandths. Default 4. It
	// holds for prompts and answers; an image, a document or a sound is 4,096 bytes of text. Prompts that come as token
	// ids have as many tokens as ids in any case.
	BytesPerToken float64

	// OutputTokens is the length of an answer whose request sets no limit. Default 64.
	OutputTokens int

	// MaxOutputTokens is the length of the longest answer, whatever the request allows. Default 1,024. An answer cut
	// here ends with "stop", one cut by the request's own limit with "length".
	MaxOutputTokens int

	// MaxModelTokens is the context length, at most the engine's KV capacity. Default 262,144. A longer prompt is an
	// error with status 400.
	MaxModelTokens int

	// PromptTokensDetails puts the numbers of cached tokens into usage, as with --enable-prompt-tokens-details. Without it
	// nobody learns of them: the Anthropic API counts them as input, the Responses API reports 0.
	PromptTokensDetails bool

	// ForceIncludeUsage ends every stream of the OpenAI APIs with its usage, as with --enable-force-include-usage. Without
	// it those that are older than responses do so if the request's stream_options ask for it.
	ForceIncludeUsage bool

	// APIKey makes /v1 answer with status 401 to requests without that bearer token, as with --api-key. Default: none
	// is needed. Everything else stays open, /metrics among it.
	APIKey string

	// DataParallel is how many engines share the address, as with --data-parallel-size. Default 1. Each has its own queue
	// and its own cache of Engine.KVTokens, and requests take turns over them whatever they have cached; all prompts of
	// one HTTP request go to the same.
	DataParallel int

	// EngineIndex is the value of the engine label of the metrics. Of several engines it is that of the first, and the
	// others count on from it.
	EngineIndex int

	// OldMetricNames makes /metrics look like that of vLLM 0.9: gpu_cache_usage_perc and
	// gpu_prefix_cache_queries and _hits in place of today's names, nothing about the sources of prompt tokens and
	// nothing about sleep.
	OldMetricNames bool

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
	setDefault(&c.DataParallel, 1)
	setDefault(&c.BytesPerToken, 4)
	c.BytesPerToken = min(max(c.BytesPerToken, 1), 100)
	setDefault(&c.OutputTokens, 64)
	setDefault(&c.MaxOutputTokens, 1024)
	setDefault(&c.MaxModelTokens, 262_144)
	c.MaxModelTokens = min(c.MaxModelTokens, c.Engine.KVTokens)
	return c
}
