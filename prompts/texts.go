// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

// prompts writes the prompts of a field that takes one or several, and says
// how many there are. A prompt is a string, a list of token ids, or an object
// with content.
func (r *reader) prompts(v raw) int {
	switch v.kind() {
	case 0:
		return 0
	case '[':
		if isID(v.first()) {
			break
		}
		n := 0
		for e := range v.elements() {
			r.onePrompt(e)
			n++
		}
		return n
	}
	r.onePrompt(v)
	return 1
}

func (r *reader) onePrompt(v raw) {
	r.mark(markPrompt)
	if v.kind() == '[' && isID(v.first()) {
		r.ids(v)
		return
	}
	r.node(v, 0)
}

// isID says whether a value is a number.
func isID(v raw) bool {
	k := v.kind()
	return k == '-' || k-'0' <= 9
}

// embeddings writes prompts that are given as encoded tensors, whose length in
// tokens does not show: each is one media item.
func (r *reader) embeddings(v raw) {
	if v.kind() == '"' {
		r.item(v)
	}
	for e := range v.elements() {
		r.item(sourceOf(e).where)
	}
}

// texts writes what is embedded, pooled or classified.
func (r *reader) texts(f *fields) {
	if f.messages.kind() != 0 {
		r.conversation(f)
		return
	}
	for _, v := range [...]raw{f.input, f.texts, f.inputs} {
		r.prompts(v)
	}
	r.embeddings(f.images)
	if f.data.kind() != 0 {
		// for a plugin of the engine, mostly one image
		r.item(sourceOf(f.data).where)
	}
}

// pairs writes two sides of which each prompt on the left is prefilled with
// each on the right, or, where there are as many left as right, with its
// counterpart. Every side is written once and charged as often as it is
// prefilled: the repeats are not part of the chain.
func (r *reader) pairs(f *fields) {
	left := f.text1.or(f.data1).or(f.queries).or(f.query)
	right := f.text2.or(f.data2).or(f.documents).or(f.items)
	n := r.prompts(left)
	a := r.count
	m := r.prompts(right)
	b := r.count.minus(a)
	if n != m && n > 0 && m > 0 {
		r.count = a.times(m).plus(b.times(n))
	}
}

// generate writes a prompt that is token ids already. Placeholders stand for
// its media, so that what tells two images apart is written before the ids.
func (r *reader) generate(f *fields) {
	if hashes := f.features.get("mm_hashes"); hashes.kind() != 0 {
		charged := r.count
		r.compact(hashes)
		r.count = charged
	}
	r.mark(markPrompt)
	r.ids(f.tokenIDs)
}
