// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "bytes"

// conversation writes what the templates of the models put first, whatever
// the order in the body: tools, documents, system, then the messages.
func (r *reader) conversation(f *fields) {
	for _, list := range [...]raw{f.tools, f.documents} {
		for e := range list.elements() {
			r.mark(markTool)
			r.compact(e)
		}
	}
	if f.system.kind() != 0 {
		r.system(f.system)
	}
	if f.instructions.kind() != 0 {
		r.message("system", f.instructions)
	}
	switch list := f.messages.or(f.input); {
	case list.first().kind() == '[':
		r.endHead()
		r.batch(list)
	case list.kind() == '"':
		r.endHead()
		r.message("user", list)
	default:
		r.messages(list)
	}
}

// batch writes several conversations, each of which is prefilled with all that
// comes before the first.
func (r *reader) batch(list raw) {
	head, n := r.count, 0
	for conversation := range list.elements() {
		r.mark(markPrompt)
		r.messages(conversation)
		n++
	}
	r.count = r.count.minus(head).plus(head.times(n))
}

// messages writes a list of messages. Nothing follows a message but the next
// one, so that a conversation which grows keeps its blocks.
func (r *reader) messages(list raw) {
	for m := range list.elements() {
		// sorted once for its role and its content: that is a pass over it
		p := partOf(m)
		if !instructs(p.role.inner()) {
			r.endHead()
		}
		r.mark(markMessage)
		if m.kind() == '{' {
			r.object(&p, 0)
		} else {
			r.node(m, 0)
		}
	}
}

// instructs is true for the roles that speak before the conversation begins.
func instructs(role []byte) bool {
	return string(role) == "system" || string(role) == "developer"
}

// message writes one message of a role that the body does not spell out.
func (r *reader) message(role string, content raw) {
	r.mark(markMessage)
	r.write([]byte(role))
	r.mark(markPart)
	r.node(content, 1)
}

// billing begins a text block that Claude Code sends first in the system
// prompt. It is another one in every request, and the engine leaves it out.
var billing = []byte("x-anthropic-billing-header")

// system writes the system prompt of the messages API.
func (r *reader) system(v raw) {
	if v.kind() != '[' {
		r.message("system", v)
		return
	}
	r.message("system", nil)
	r.list(v, 1, func(block raw) bool {
		return !bytes.HasPrefix(block.get("text").inner(), billing)
	})
}

// maxNest is how deep content is followed into content: a message, its parts,
// a tool's result, its parts. It bounds the time, for every level is a pass
// over what is in it.
const maxNest = 6

// node writes a message, an item, a part of one, or a list of parts: whatever
// stands where content is expected.
func (r *reader) node(v raw, nest int) {
	switch k := v.kind(); {
	case k == '"':
		r.text(v)
	case k != '[' && k != '{':
		// nothing, or what cannot be content
	case nest > maxNest:
		r.mark(markOther)
	case k == '[':
		r.list(v, nest, nil)
	default:
		p := partOf(v)
		r.object(&p, nest)
	}
}

// list writes parts with a mark between them, so that one part alone is the
// same as its bare content. A part that keep is false for is not there.
func (r *reader) list(v raw, nest int, keep func(raw) bool) {
	between := false
	for e := range v.elements() {
		if keep != nil && !keep(e) {
			continue
		}
		if between {
			r.mark(markPart)
		}
		between = true
		r.node(e, nest+1)
	}
}

// object writes the fields of a message, an item or a part in one order.
func (r *reader) object(p *part, nest int) {
	if p.role.kind() != 0 {
		r.name(p.role)
		r.mark(markPart)
	}
	if p.reasoning.kind() != 0 || p.summary.kind() != 0 {
		r.mark(markReasoning)
		r.node(p.reasoning, nest+1)
		r.node(p.summary, nest+1)
		r.mark(markReasoning)
	}
	if p.name.kind() != 0 {
		r.text(p.name)
		r.mark(markPart)
	}
	r.node(p.content, nest+1)
	r.node(p.text, nest+1)
	for call := range p.calls.elements() {
		r.mark(markCall)
		r.node(call, nest+1)
	}
	r.node(p.function, nest+1)
	if p.arguments.kind() != 0 {
		r.mark(markCall)
		r.value(p.arguments)
	}
	if p.output.kind() != 0 {
		r.mark(markResult)
		r.node(p.output, nest+1)
	}
	if p.role.kind() == 0 {
		r.partMedia(p, nest)
	}
}

// value writes what is text in one API and JSON in another.
func (r *reader) value(v raw) {
	if v.kind() == '"' {
		r.text(v)
	} else {
		r.compact(v)
	}
}
