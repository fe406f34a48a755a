// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "strings"

// fields are the members of a body that say something about its prompt. Of a
// repeated name the last one holds, as in the JSON module of Python.
type fields struct {
	model, salt, stream                    raw
	tools, documents, system, instructions raw
	messages, prompt, embeds, input        raw
	inputs, texts, images, data            raw
	text1, text2, data1, data2             raw
	query, queries, items                  raw
	tokenIDs, features                     raw
	session, cacheKey, conversation, meta  raw
	previous                               raw
}

// read sorts the members of a body into f, which is empty. It is false if the body
// is no JSON object, or, unless cut, no whole one.
func (f *fields) read(body []byte, cut bool) bool {
	return wellFormed(body, cut, func(name, value raw) {
		if p := f.named(string(name.short())); p != nil {
			*p = value
		}
	})
}

// named is the field of a JSON name, and nil for a name that does not matter.
func (f *fields) named(name string) *raw {
	switch name {
	case "model":
		return &f.model
	case "cache_salt":
		return &f.salt
	case "stream":
		return &f.stream
	case "tools":
		return &f.tools
	case "documents":
		return &f.documents
	case "system":
		return &f.system
	case "instructions":
		return &f.instructions
	case "messages":
		return &f.messages
	case "prompt":
		return &f.prompt
	case "prompt_embeds":
		return &f.embeds
	case "input":
		return &f.input
	case "inputs":
		return &f.inputs
	case "texts":
		return &f.texts
	case "images":
		return &f.images
	case "data":
		return &f.data
	case "text_1":
		return &f.text1
	case "text_2":
		return &f.text2
	case "data_1":
		return &f.data1
	case "data_2":
		return &f.data2
	case "query":
		return &f.query
	case "queries":
		return &f.queries
	case "items":
		return &f.items
	case "token_ids":
		return &f.tokenIDs
	case "features":
		return &f.features
	case "session_id":
		return &f.session
	case "prompt_cache_key":
		return &f.cacheKey
	case "conversation":
		return &f.conversation
	case "metadata":
		return &f.meta
	case "previous_response_id":
		return &f.previous
	}
	return nil
}

// hints are the names of a session in the body, best first. Ids of a request
// or of a user are none of them.
func (f *fields) hints() []Hint {
	var hints []Hint
	for _, h := range [...]struct {
		source string
		value  raw
	}{
		{"session_id", f.session},
		{"prompt_cache_key", f.cacheKey},
		{"conversation", f.conversation.get("id").or(f.conversation)},
		{"metadata.user_id", f.meta.get("user_id")},
	} {
		if s := h.value.text(); s != "" {
			hints = append(hints, Hint{Source: h.source, Value: s})
		}
	}
	return hints
}

// isTrue reads a boolean as the engine's request models do, to which 1 and
// words such as "yes" are true as well.
func isTrue(s []byte) bool {
	if len(s) > len("true") {
		return false
	}
	switch strings.ToLower(string(s)) {
	case "true", "1", "1.0", "t", "y", "yes", "on":
		return true
	}
	return false
}
