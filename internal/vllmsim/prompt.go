// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
)

// bytesPerToken is the tokenizer: a token is four bytes of text, or one token id.
const bytesPerToken = 4

// The 64-bit FNV-1a hash, written out because a chain needs its state after every block.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv[T string | []byte](h uint64, text T) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

// prompt is a text as the engine sees it: a length and a chain of blocks.
type prompt struct {
	tokens     int
	blocks     []uint64
	blockBytes int
	size       int    // bytes of text
	state      uint64 // hash of everything
}

// newPrompt cuts a text into blocks. The chain starts with the model's name, so models share nothing.
func newPrompt(model string, text []byte, blockTokens int) prompt {
	p := prompt{blockBytes: blockTokens * bytesPerToken, state: fnv(fnvOffset, model+"\x00")}
	p.blocks = p.extend(text)
	p.state = fnv(p.state, text)
	p.size = len(text)
	p.tokens = max(p.size/bytesPerToken, 1)
	return p
}

// extend returns the names of the blocks that more text completes.
func (p prompt) extend(text []byte) []uint64 {
	var chain []uint64
	h, filled := p.state, p.size%p.blockBytes
	for len(text) >= p.blockBytes-filled {
		h = fnv(h, text[:p.blockBytes-filled])
		text = text[p.blockBytes-filled:]
		filled = 0
		chain = append(chain, h)
	}
	return chain
}

// request returns the engine's view of the prompt and of an answer that a next prompt may repeat as said.
func (p prompt) request(id string, a answer, said []byte) *Request {
	return &Request{
		ID:           id,
		PromptTokens: p.tokens,
		Blocks:       p.blocks,
		OutputBlocks: p.extend(said),
		OutputTokens: a.tokens,
	}
}

// promptList is the prompt or input field of the older APIs: a string, strings, token ids, or lists of token ids. Each
// element is one prompt as bytes, a token id being four of them.
type promptList [][]byte

// UnmarshalJSON accepts the four shapes; null is an empty list.
func (l *promptList) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*l = promptList{[]byte(*text)}
		}
		return nil
	}
	var texts []string
	if json.Unmarshal(data, &texts) == nil {
		for _, t := range texts {
			*l = append(*l, []byte(t))
		}
		return nil
	}
	var ids []uint32
	if json.Unmarshal(data, &ids) == nil {
		*l = promptList{idBytes(ids)}
		return nil
	}
	var lists [][]uint32
	if json.Unmarshal(data, &lists) == nil {
		for _, ids := range lists {
			*l = append(*l, idBytes(ids))
		}
		return nil
	}
	return errors.New("a prompt is a string, a list of strings, a list of token ids, or a list of such lists")
}

// idBytes writes token ids as text.
func idBytes(ids []uint32) []byte {
	text := make([]byte, 0, len(ids)*bytesPerToken)
	for _, id := range ids {
		text = binary.LittleEndian.AppendUint32(text, id)
	}
	return text
}

// tokenIDs reads text as token ids of a vocabulary of 150,000.
func tokenIDs(text []byte) []uint32 {
	ids := make([]uint32, 0, len(text)/bytesPerToken)
	for len(text) >= bytesPerToken {
		ids = append(ids, uint32(fnv(fnvOffset, text[:bytesPerToken])%150_000))
		text = text[bytesPerToken:]
	}
	return ids
}
