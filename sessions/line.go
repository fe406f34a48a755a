// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

// Line is what is remembered of a session's prompt, to tell its next turn from
// what others send under the same name. The zero value is no prompt.
type Line struct {
	head   uint64
	last   uint64
	blocks int
}

// NewLine returns the line of a prompt: head names the tools and instructions
// it begins with, 0 for none, and blocks are its chain of block hashes, of
// which the last one stands for all.
func NewLine(head uint64, blocks []uint64) Line {
	l := Line{head: head, blocks: len(blocks)}
	if len(blocks) > 0 {
		l.last = blocks[len(blocks)-1]
	}
	return l
}

// Known reports that there is a prompt to compare with.
func (l Line) Known() bool { return l.head != 0 || l.blocks > 0 }

// Extends reports that a prompt begins with all of the line's whole blocks.
func (l Line) Extends(blocks []uint64) bool {
	return l.blocks > 0 && len(blocks) >= l.blocks && blocks[l.blocks-1] == l.last
}

// Continues reports that a prompt is another turn of the line's conversation:
// it extends it, or begins with the same tools and instructions, as it does
// after the history was summed up. A sub-agent that is sent under its parent's
// name does neither.
func (l Line) Continues(head uint64, blocks []uint64) bool {
	return l.Extends(blocks) || l.head != 0 && l.head == head
}
