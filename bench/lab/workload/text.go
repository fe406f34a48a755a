// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package workload

// mix names things: equal arguments have equal names, and different ones
// practically never do. No name is 0.
func mix(parts ...uint64) uint64 {
	h := uint64(0x8445d61a4e774912)
	for _, part := range parts {
		h = scramble(h ^ scramble(part))
	}
	return max(h, 1)
}

// scramble is the finalizer of splitmix64.
func scramble(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// text is a chain of block names that grows: a shared beginning and what a
// writer adds to it.
type text struct {
	blockTokens int
	writer      uint64
	shared      int
	blocks      []uint64
}

// newText returns the text whose first shared tokens are those of the text
// named source, and which writer goes on with. A block that holds tokens of
// both is the writer's.
func newText(blockTokens int, source uint64, shared int, writer uint64) *text {
	t := &text{blockTokens: blockTokens, writer: writer, shared: shared}
	for len(t.blocks) < shared/blockTokens {
		t.blocks = append(t.blocks, mix(source, uint64(len(t.blocks))))
	}
	return t
}

// request is a prompt of the first tokens of the text, answered with its next
// ones.
func (t *text) request(tokens, output int) Request {
	for len(t.blocks) < (tokens+output)/t.blockTokens {
		t.blocks = append(t.blocks, mix(t.writer, uint64(len(t.blocks))))
	}
	at, end := tokens/t.blockTokens, (tokens+output)/t.blockTokens
	return Request{
		Tokens:   tokens,
		Blocks:   t.blocks[:at:at],
		Answer:   t.blocks[at:end:end],
		Output:   output,
		Streamed: true,
		Writer:   t.writer,
		Shared:   t.shared,
	}
}
