// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"
)

// mark is a byte between pieces of canonical text. It tells one arrangement of
// the same words from another, is hashed, and is charged nothing. None of them
// occurs in UTF-8.
type mark byte

const (
	markTool mark = 0xf8 + iota
	markMessage
	markPart
	markReasoning
	markCall
	markResult
	markPrompt
	markOther
)

// chain turns canonical text into block hashes as it is written, and counts
// what is charged. It holds one block of text at a time.
type chain struct {
	// block is the hash of everything before it and the text so far
	block  [8 + BlockBytes]byte
	filled int

	blocks    []uint64
	maxBlocks int

	count tally

	// head names what a conversation begins with, 0 until it is known
	head uint64
}

// tally is what a prompt is charged for.
type tally struct {
	textBytes, tokenIDs, mediaTokens int64
}

// begin seeds the chain with what separates prompts of the same text: the
// model, for an adapter and its base share no cache, and the client's salt.
func (c *chain) begin(model, salt []byte, bodyBytes int, l Limits) {
	c.maxBlocks = l.MaxPromptTokens / BlockTokens
	c.blocks = make([]uint64, 0, min(bodyBytes/BlockBytes+1, c.maxBlocks))
	var d xxhash.Digest
	d.Reset()
	for _, s := range [...][]byte{model, {0xff}, salt} {
		_, _ = d.Write(s)
	}
	binary.LittleEndian.PutUint64(c.block[:8], d.Sum64())
}

// endHead notes that the conversation's own text begins here, if anything stands
// before it.
func (c *chain) endHead() {
	if c.head == 0 && len(c.blocks)+c.filled > 0 {
		c.head = xxhash.Sum64(c.block[:8+c.filled])
	}
}

// full is true once the prompt is named as far as it is worth.
func (c *chain) full() bool { return len(c.blocks) >= c.maxBlocks }

// write adds to the canonical text, and charges nothing.
func (c *chain) write(p []byte) {
	for len(p) > 0 && !c.full() {
		n := copy(c.block[8+c.filled:], p)
		p = p[n:]
		c.filled += n
		if c.filled == BlockBytes {
			c.close()
		}
	}
}

// put adds one byte, and charges nothing.
func (c *chain) put(b byte) {
	if c.full() {
		return
	}
	c.block[8+c.filled] = b
	c.filled++
	if c.filled == BlockBytes {
		c.close()
	}
}

// close ends a block that is whole.
func (c *chain) close() {
	h := xxhash.Sum64(c.block[:])
	binary.LittleEndian.PutUint64(c.block[:8], h)
	c.blocks = append(c.blocks, h)
	c.filled = 0
}

// mark adds one mark.
func (c *chain) mark(m mark) { c.put(byte(m)) }

// name adds a string that the engine puts into the prompt in its own form, such
// as a role: hashed, and charged nothing.
func (c *chain) name(v raw) {
	charged := c.count
	c.text(v)
	c.count = charged
}

// text adds a string without its escapes and charges for its bytes.
func (c *chain) text(v raw) {
	s := v.inner()
	for len(s) > 0 {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			c.plain(s)
			return
		}
		c.plain(s[:n])
		r, used := unescape(s[n:])
		switch {
		case r >= utf8.RuneSelf:
			var buf [utf8.UTFMax]byte
			c.plain(utf8.AppendRune(buf[:0], r))
		case r >= 0:
			c.count.textBytes++
			c.put(byte(r))
		}
		s = s[n+used:]
	}
}

// plain adds text as it stands and charges for its bytes.
func (c *chain) plain(p []byte) {
	c.count.textBytes += int64(len(p))
	c.write(p)
}

// ids adds an array of token ids, four bytes and one token each. An id at the
// very end is not whole, for an array ends with a bracket.
func (c *chain) ids(v raw) {
	var buf [BytesPerToken]byte
	n, digits := uint32(0), 0
	for _, b := range v {
		if b-'0' <= 9 {
			n = n*10 + uint32(b-'0')
			digits++
			continue
		}
		if digits > 0 {
			c.count.tokenIDs++
			binary.LittleEndian.PutUint32(buf[:], n)
			c.write(buf[:])
			n, digits = 0, 0
		}
	}
}

// media adds an image, sound, video or file that is known by its digest. It
// fills as much canonical text as it is charged, so that blocks and tokens
// keep step in a conversation that is mostly pictures.
func (c *chain) media(digest uint64, tokens int) {
	c.count.mediaTokens += int64(tokens)
	c.mark(markPart)
	var buf [8]byte
	binary.LittleEndian.PutUint64(buf[:], digest)
	for n := 0; n < tokens && !c.full(); n += len(buf) / BytesPerToken {
		c.write(buf[:])
	}
}

// plus is the sum of two tallies.
func (t tally) plus(o tally) tally {
	return tally{t.textBytes + o.textBytes, t.tokenIDs + o.tokenIDs, t.mediaTokens + o.mediaTokens}
}

// minus is what was charged since o.
func (t tally) minus(o tally) tally {
	return tally{t.textBytes - o.textBytes, t.tokenIDs - o.tokenIDs, t.mediaTokens - o.mediaTokens}
}

// times is the tally of n prompts, with a ceiling that no sum of a few such
// tallies overflows.
func (t tally) times(n int) tally {
	return tally{scaled(t.textBytes, n), scaled(t.tokenIDs, n), scaled(t.mediaTokens, n)}
}

func scaled(a int64, n int) int64 {
	const ceiling = 1 << 59
	hi, lo := bits.Mul64(uint64(a), uint64(max(n, 0)))
	if hi != 0 || lo > ceiling {
		return ceiling
	}
	return int64(lo)
}

// tokens is the estimate.
func (t tally) tokens() int64 {
	return t.textBytes/BytesPerToken + t.tokenIDs + t.mediaTokens
}
