// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package sessions

// Line is what is remembered of a session's prompt, to tell its next turn from
// what others send under the same name. The zero value is no prompt.
type Line struct {
	// Head names the tools and instructions that the prompt begins with, 0 for
	// none.
	Head uint64

	// Last is the hash of the prompt's last whole block, which stands for all
	// of them, and Blocks is how many there are.
	Last   uint64
	Blocks int
}

// NewLine returns the line of a prompt: head names the tools and instructions
// it begins with, 0 for none, and blocks are its chain of block hashes, of
// which the last one stands for all.
func NewLine(head uint64, blocks []uint64) Line {
	l := Line{Head: head, Blocks: len(blocks)}
	if len(blocks) > 0 {
		l.Last = blocks[len(blocks)-1]
	}
	return l
}

// Known reports that there is a prompt to compare with.
func (l Line) Known() bool { return l.Head != 0 || l.Blocks > 0 }

// Extends reports that a prompt begins with all of the line's whole blocks.
func (l Line) Extends(blocks []uint64) bool {
	return l.Blocks > 0 && len(blocks) >= l.Blocks && blocks[l.Blocks-1] == l.Last
}

// Continues reports that a prompt is another turn of the line's conversation:
// it extends it, or begins with the same tools and instructions, as it does
// after the history was summed up. A sub-agent that is sent under its parent's
// name does neither.
func (l Line) Continues(head uint64, blocks []uint64) bool {
	return l.Extends(blocks) || l.Head != 0 && l.Head == head
}
