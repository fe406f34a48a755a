// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/json"
	"errors"
)

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
	density
	tokens      int
	blocks      []uint64
	blockTokens int
	size        int    // bytes of text
	state       uint64 // hash of everything
}

// newPrompt cuts a text into blocks. The chain starts with the model's name, so models share nothing.
func newPrompt(model string, text []byte, d density, blockTokens int) prompt {
	p := prompt{density: d, blockTokens: blockTokens, state: fnv(fnvOffset, model+"\x00")}
	p.blocks = p.extend(text)
	p.state = fnv(p.state, text)
	p.size = len(text)
	p.tokens = max(d.tokens(p.size), 1)
	return p
}

// extend returns the names of the blocks that more text completes.
func (p prompt) extend(text []byte) []uint64 {
	var chain []uint64
	h, read := p.state, p.size
	for k := p.density.tokens(p.size)/p.blockTokens + 1; ; k++ {
		missing := p.bytes(k*p.blockTokens) - read
		if len(text) < missing {
			return chain
		}
		h = fnv(h, text[:missing])
		text, read = text[missing:], read+missing
		chain = append(chain, h)
	}
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

// promptText is one prompt as bytes.
type promptText struct {
	text []byte
	ids  bool // they are token ids
}

// promptList is the prompt or input field of the older APIs: a string, strings, token ids, or lists of token ids.
type promptList []promptText

// onePrompt returns the list of a prompt that is text.
func onePrompt(text []byte) promptList { return promptList{{text: text}} }

// UnmarshalJSON accepts the four shapes; null is an empty list.
func (l *promptList) UnmarshalJSON(data []byte) error {
	var text *string
	if json.Unmarshal(data, &text) == nil {
		if text != nil {
			*l = onePrompt([]byte(*text))
		}
		return nil
	}
	var texts []string
	if json.Unmarshal(data, &texts) == nil {
		for _, t := range texts {
			*l = append(*l, promptText{text: []byte(t)})
		}
		return nil
	}
	var ids []uint32
	if json.Unmarshal(data, &ids) == nil {
		*l = promptList{{idBytes(ids), true}}
		return nil
	}
	var lists [][]uint32
	if json.Unmarshal(data, &lists) == nil {
		for _, ids := range lists {
			*l = append(*l, promptText{idBytes(ids), true})
		}
		return nil
	}
	return errors.New("a prompt is a string, a list of strings, a list of token ids, or a list of such lists")
}
