// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

// BytesPerToken is how many bytes of text are taken for one token.
const BytesPerToken = 4

// BlockBytes is how many bytes of canonical text one block covers. A token id
// is written as four bytes and a media item as four bytes per token it is
// charged, so a block stands for BlockTokens whatever it is made of.
const BlockBytes = 1024

// BlockTokens is how many prompt tokens a whole block stands for.
const BlockTokens = BlockBytes / BytesPerToken

// MaxValueBytes is the longest model name, session hint or response id that is
// reported. A longer one is left out of the Prompt.
const MaxValueBytes = 512

// Defaults of Limits.
const (
	DefaultMaxPromptTokens = 262144
	DefaultMediaTokens     = 1024
)

// Limits are the bounds of an estimate. The zero value stands for the defaults.
type Limits struct {
	// MaxPromptTokens caps Prompt.Tokens, and with it the part of the prompt
	// that is named by blocks. Default: 262144 when 0 or negative.
	MaxPromptTokens int

	// MediaTokens is what one image, sound, video or file is charged, in
	// tokens. Default: 1024 when 0 or negative.
	MediaTokens int
}

// Prompt is what a request body asks of an engine. It shares no memory with
// the body it was read from.
type Prompt struct {
	// Parsed is false where the body could not be read: then Tokens is its
	// size, and nothing else is known but Prefills.
	Parsed bool

	// Prefills is true where the engine has a prompt to prefill.
	Prefills bool

	// Streams is true where the client asked for an event stream and the
	// endpoint can send one.
	Streams bool

	// Model is the model asked for, or empty.
	Model string

	// Tokens is the estimate of all prompt tokens to prefill, from 0 to
	// Limits.MaxPromptTokens.
	Tokens int

	// TextBytes, TokenIDs and MediaTokens are what Tokens is made of, not
	// capped: the bytes of decoded text, the prompts given as token ids, and
	// the fixed cost of all media items. Tokens is
	// TextBytes/BytesPerToken + TokenIDs + MediaTokens, capped; of a body that
	// was cut off it is at least the size of what is there.
	TextBytes, TokenIDs, MediaTokens int64

	// Blocks name the prompt's beginning, one hash for each whole kilobyte of
	// canonical text up to MaxPromptTokens. Each hash stands for its block and
	// everything before it, the model and the cache salt included. Several
	// prompts of one body follow one another in one chain: who has seen block
	// k has seen every prompt up to there. Nil when not Parsed, and when the
	// body was cut off before its model.
	Blocks []uint64

	// Head names the tools, documents and instructions that a conversation
	// begins with, the model included: an agent's turns share it, also after
	// its history was summed up, while its sub-agents have their own. 0 where
	// there is none.
	Head uint64

	// Hints are the names of a session in the body, best first.
	Hints []Hint

	// PreviousResponse is the id of the response that this request continues,
	// or empty. What came before it is known to the engine that holds that
	// response only, and is not in Tokens.
	PreviousResponse string
}

// Hint is a value in a body that several requests of one session share.
type Hint struct {
	// Source is the field: "session_id", "prompt_cache_key", "conversation"
	// or "metadata.user_id".
	Source string

	// Value is what the client sent, from 1 to MaxValueBytes bytes.
	Value string
}

// BySize is the estimate for a body that nobody read, of which only the size
// is known: a token for every four bytes, capped. An unknown size, which is
// negative, counts as 0.
func BySize(bytes int64, l Limits) int {
	return l.capped(bytes / BytesPerToken)
}

// withDefaults fills in what is not set.
func (l Limits) withDefaults() Limits {
	if l.MaxPromptTokens <= 0 {
		l.MaxPromptTokens = DefaultMaxPromptTokens
	}
	if l.MediaTokens <= 0 {
		l.MediaTokens = DefaultMediaTokens
	}
	return l
}

// capped is an estimate within the limits.
func (l Limits) capped(tokens int64) int {
	return int(min(max(tokens, 0), int64(l.withDefaults().MaxPromptTokens)))
}
