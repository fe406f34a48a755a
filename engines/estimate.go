// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

// Bounds of how many bytes of text one token may stand for. English is near 4,
// source code near 3, Chinese near 3 and random characters near 2.
const (
	leastBytesPerToken = 1.5
	mostBytesPerToken  = 8
)

// What is learned from one prompt: nothing where it is so short that a chat
// template's own tokens matter, and at most a fiftieth of the difference.
const (
	estimateLeastBytes = 2048
	estimateFullBytes  = 64 << 10
	estimateMost       = 0.02
)

// Estimate is how many bytes of text a model's tokens stand for, learned from
// the usage that responses report. The zero value has learned nothing.
type Estimate struct {
	bytesPerToken float64
	samples       int
}

// Learn takes in that a prompt of textBytes was so many tokens. start is what is
// assumed while nothing is learned.
func (e *Estimate) Learn(textBytes, tokens int, start float64) {
	if textBytes < estimateLeastBytes || tokens <= 0 {
		return
	}
	if e.samples == 0 {
		e.bytesPerToken = start
	}
	seen := min(max(float64(textBytes)/float64(tokens), leastBytesPerToken), mostBytesPerToken)
	// the first prompts count more, so that a model far from the assumption
	// is known after a dozen
	weight := max(estimateMost, 1/float64(e.samples+8)) *
		min(float64(textBytes)/estimateFullBytes+0.25, 1)
	e.bytesPerToken += weight * (seen - e.bytesPerToken)
	e.samples++
}

// BytesPerToken returns what was learned, or start while that is nothing.
func (e *Estimate) BytesPerToken(start float64) float64 {
	if e == nil || e.samples == 0 {
		return start
	}
	return e.bytesPerToken
}
