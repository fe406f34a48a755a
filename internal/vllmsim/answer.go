// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "strings"

// vocabulary holds the words of the answers. With a blank each is four bytes, usually one token.
var vocabulary = strings.Fields(`
	air arm ash bay bee bow box bud cat cow cup day dew dog ear egg elm eye fig fin fir fog fox gem hat hay hen ice ink ivy
	jam jar jay key kit log map mud net nut oak oar oat owl pan paw pea pen pie pin pod pot ray rye sap sea sky sun tea toy
	urn van web yew`)

// answer is what the model is going to say.
type answer struct {
	density
	text   string
	tokens int
	finish string // in the words of chat completions: stop, length or tool_calls
	tool   string // the function to call; then text is its arguments
}

// piece returns the text of token k.
func (a answer) piece(k int) string { return a.density.piece(a.text, k) }

// ids returns the text as token ids.
func (a answer) ids() []uint32 { return a.density.ids(a.text) }

// textAnswer returns words that depend on the seed and the prompt only, cut after so many tokens.
func textAnswer(seed uint64, p prompt, tokens int, finish string) answer {
	var b strings.Builder
	state := seed ^ p.state
	size := p.bytes(tokens)
	for b.Len() < size {
		state += 0x9e3779b97f4a7c15
		word := (state ^ state>>31) * 0xbf58476d1ce4e5b9 >> 33
		b.WriteString(vocabulary[word%uint64(len(vocabulary))])
		b.WriteByte(' ')
	}
	return answer{density: p.density, text: b.String()[:size], tokens: tokens, finish: finish}
}
