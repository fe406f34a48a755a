// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

// Read says what body asks of an engine. It never fails and never changes the
// body: what it cannot parse is placed by size, as is every body of an endpoint
// that prefills but is not worth reading. It takes time linear in the size of
// the body and memory that the limits bound.
//
// With complete false, body is the first part of a longer one. It is parsed as
// far as it goes: blocks name the prompt up to the cut, fields behind the cut
// are not known, and Tokens is what was parsed or the size of the part,
// whichever is more. Without the model there are no blocks, for nobody can
// tell whose they are; those of the message that is cut may miss a member of
// it. What the missing rest costs is for the caller to add, see [BySize].
//
// contentType matters to endpoints that take forms only.
func (e Endpoint) Read(body []byte, complete bool, contentType string, l Limits) Prompt {
	l = l.withDefaults()
	unparsed := Prompt{Prefills: e.Prefills}
	if e.Prefills {
		unparsed.Tokens = BySize(int64(len(body)), l)
	}
	if !e.Reads {
		return unparsed
	}
	var p Prompt
	var ok bool
	if e.shape == shapeForm {
		p, ok = readForm(body, complete, contentType, l)
	} else {
		p, ok = readJSON(body, complete, e.shape, l)
	}
	if !ok {
		return unparsed
	}
	if !complete && p.Model == "" {
		p.Blocks = nil
	}
	p.Parsed = true
	p.Prefills = e.Prefills
	p.Streams = p.Streams && e.Streams
	if !complete {
		p.Tokens = max(p.Tokens, unparsed.Tokens)
	}
	return p
}

// readJSON reads a JSON body. It is false for what is none, and for a complete
// body that ends too early.
func readJSON(body []byte, complete bool, s shape, l Limits) (Prompt, bool) {
	var f fields
	if !f.read(body, !complete) {
		return Prompt{}, false
	}
	r := reader{limits: l}
	r.begin(f.model.short(), f.salt.short(), len(body), l)
	r.prompt(&f, s)
	p := r.estimate()
	p.Model = f.model.text()
	p.Streams = isTrue(f.stream) || isTrue(f.stream.inner())
	p.Hints = f.hints()
	p.PreviousResponse = f.previous.text()
	return p, true
}

// reader writes what is prompt in a body to a chain.
type reader struct {
	chain
	limits Limits
}

// estimate is what the chain says of the prompt.
func (r *reader) estimate() Prompt {
	return Prompt{
		Tokens:      r.limits.capped(r.count.tokens()),
		TextBytes:   r.count.textBytes,
		TokenIDs:    r.count.tokenIDs,
		MediaTokens: r.count.mediaTokens,
		Blocks:      r.blocks,
		Head:        r.head,
	}
}

// prompt writes the prompts of a body of the given shape.
func (r *reader) prompt(f *fields, s shape) {
	if s == shapeGuess {
		s = f.guess()
	}
	switch s {
	case shapeConversation:
		r.conversation(f)
	case shapeCompletion:
		r.prompts(f.prompt)
		r.embeddings(f.embeds)
	case shapeTexts:
		r.texts(f)
	case shapePairs:
		r.pairs(f)
	case shapeIDs:
		r.generate(f)
	case shapeNone, shapeForm, shapeGuess:
		// not JSON, or told by now
	}
}

// guess is the shape of a body whose path does not tell, in the order in which
// the engine tries its request models.
func (f *fields) guess() shape {
	switch {
	case f.messages.kind() != 0:
		return shapeConversation
	case f.prompt.kind() != 0 || f.embeds.kind() != 0:
		return shapeCompletion
	case f.text1.kind() != 0, f.data1.kind() != 0, f.query.kind() != 0, f.queries.kind() != 0:
		return shapePairs
	case f.tokenIDs.kind() != 0:
		return shapeIDs
	}
	return shapeTexts
}
