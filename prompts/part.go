// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "github.com/cespare/xxhash/v2"

// part holds the fields that are prompt in a message, an item or a part of
// one, of every conversation API. Ids of calls are not among them: clients
// that translate between APIs make new ones each turn, and hardly any template
// shows them to the model.
type part struct {
	role, name, content, text  raw
	reasoning, summary         raw
	calls, function, arguments raw
	output, media, uuid        raw
}

// partOf sorts the members of an object. Of a repeated name the last one
// holds, and of several names with one meaning the last that is not null.
func partOf(v raw) part {
	var p part
	var older raw
	for name, value := range v.members() {
		switch string(name) {
		case "role":
			p.role = value
		case "name":
			p.name = value
		case "content":
			p.content = value
		case "text", "refusal", "code":
			p.text = value.or(p.text)
		case "reasoning", "thinking", "tool_plan":
			p.reasoning = value.or(p.reasoning)
		case "reasoning_content":
			older = value
		case "summary":
			p.summary = value
		case "tool_calls":
			p.calls = value
		case "function", "function_call":
			p.function = value
		case "arguments", "input", "action":
			p.arguments = value
		case "output":
			p.output = value
		case "uuid":
			p.uuid = value
		default:
			if isMedia(string(name)) {
				p.media = value.or(p.media)
			}
		}
	}
	p.reasoning = p.reasoning.or(older)
	return p
}

// isMedia says whether a member of that name holds an image, sound, video or
// file, or says where it is.
func isMedia(name string) bool {
	switch name {
	case "image_url", "input_audio", "audio_url", "video_url", "image", "audio", "video", "document",
		"image_embeds", "audio_embeds", "source", "file", "file_data", "file_url", "file_id":
		return true
	}
	return false
}

// partMedia writes what a part of a message holds beside text.
func (r *reader) partMedia(p *part, nest int) {
	if p.text.or(p.content).kind() != 0 {
		return
	}
	if p.uuid.kind() == '"' {
		// the engine looks the item up by this name, its bytes may be absent
		r.item(p.uuid)
		return
	}
	switch s := sourceOf(p.media); {
	case s.text.kind() != 0:
		r.value(s.text)
	case s.content.kind() != 0:
		r.node(s.content, nest+1)
	case s.where.kind() != 0:
		r.item(s.where)
	}
}

// source is what a media field says: exactly one of text of its own, content
// to follow, and the bytes of an item or where they are.
type source struct {
	text, content, where raw
}

// sourceOf reads a media field. What tells an item from another is its bytes
// or where they are, not the members around them.
func sourceOf(v raw) source {
	if v.kind() != '{' {
		return source{where: v}
	}
	var kind, data, place, content raw
	for name, value := range v.members() {
		switch string(name) {
		case "type":
			kind = value
		case "data":
			data = value
		case "content":
			content = value
		case "url", "file_data", "file_url", "file_id":
			place = value.or(place)
		}
	}
	switch {
	case data.kind() == '{' || string(kind) == `"text"`:
		return source{text: data}
	case content.kind() != 0:
		return source{content: content}
	}
	return source{where: place.or(data).or(v)}
}

// item writes one media item. One that was cut off is charged, but it has no
// digest to be known by.
func (r *reader) item(v raw) {
	if !v.closed() {
		r.count.mediaTokens += int64(r.limits.MediaTokens)
		return
	}
	r.media(xxhash.Sum64(v), r.limits.MediaTokens)
}
