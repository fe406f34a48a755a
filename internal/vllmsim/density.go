// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"encoding/binary"
	"math"
)

// density is the tokenizer: how many bytes make a token, in thousandths. In whole numbers, lengths and boundaries
// cannot disagree.
type density int

// idDensity is that of prompts that come as token ids, which are written as four bytes each.
const idDensity density = 4000

func newDensity(bytesPerToken float64) density {
	return density(math.Round(bytesPerToken * 1000))
}

// tokens returns how many whole tokens are in a text of some size.
func (d density) tokens(size int) int { return size * 1000 / int(d) }

// bytes returns the size of the shortest text that has n tokens.
func (d density) bytes(n int) int { return (n*int(d) + 999) / 1000 }

// cover returns how many tokens it takes to say a text of some size to its end.
func (d density) cover(size int) int { return (size*1000 + int(d) - 1) / int(d) }

// piece returns token k of a text. The last one may be cut short.
func (d density) piece(text string, k int) string {
	return text[min(d.bytes(k), len(text)):min(d.bytes(k+1), len(text))]
}

// ids reads text as token ids.
func (d density) ids(text string) []uint32 {
	ids := make([]uint32, d.tokens(len(text)))
	for k := range ids {
		ids[k] = tokenID(d.piece(text, k))
	}
	return ids
}

// tokenID returns the id of a token in a vocabulary of 150,000.
func tokenID(piece string) uint32 {
	return uint32(fnv(fnvOffset, piece) % 150_000)
}

// idBytes writes token ids as text.
func idBytes(ids []uint32) []byte {
	text := make([]byte, 0, idDensity.bytes(len(ids)))
	for _, id := range ids {
		text = binary.LittleEndian.AppendUint32(text, id)
	}
	return text
}
