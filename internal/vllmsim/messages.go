// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

// messagesRequest is what the server reads of a request of the Anthropic API.
type messagesRequest struct {
	Model      string        `json:"model"`
	System     any           `json:"system"`
	Messages   []chatMessage `json:"messages"`
	Tools      []any         `json:"tools"`
	ToolChoice any           `json:"tool_choice"`
	MaxTokens  *int          `json:"max_tokens"`
	Stream     bool          `json:"stream"`
}

// conversation returns the messages as text. A user message that carries the result of a tool is the tool's.
func (in *messagesRequest) conversation() []message {
	var list []message
	if in.System != nil {
		list = append(list, message{"system", contentText(in.System)})
	}
	for _, m := range in.Messages {
		role := m.Role
		if hasPart(m.Content, "tool_result") {
			role = "tool"
		}
		list = append(list, message{role, contentText(m.Content)})
	}
	return list
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request, f Fault) {
	var in messagesRequest
	if !decode(w, r, &in) {
		return
	}
	if len(in.Messages) == 0 || in.MaxTokens == nil {
		writeError(w, r, badRequest("Field required: messages and max_tokens"))
		return
	}
	list := in.conversation()
	g, fail := s.plan(r, "msg_", asked{
		model:     in.Model,
		prompts:   onePrompt(transcript(in.Tools, list)),
		maxTokens: in.MaxTokens,
		forced:    forcedCall(in.Tools, in.ToolChoice, list),
	})
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	s.serve(w, r, f, g, in.Stream, &messagesDialect{g})
}

// countTokens renders a prompt and does not run it.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	var in messagesRequest
	if !decode(w, r, &in) {
		return
	}
	model, fail := s.served(in.Model)
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	p := s.prompt(model, promptText{text: transcript(in.Tools, in.conversation())})
	writeJSON(w, http.StatusOK, object{"input_tokens": p.tokens, "context_management": nil})
}

// messagesDialect writes Anthropic messages.
type messagesDialect struct{ *generation }

func (d *messagesDialect) begin(*events) {}

func (d *messagesDialect) first(e *events, _ int) {
	e.send("message_start", object{"type": "message_start", "message": d.message([]object{}, nil, d.tokens(0))})
	e.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": d.block("")})
}

func (d *messagesDialect) token(e *events, _ int, text string) {
	delta := object{"type": "text_delta", "text": text}
	if d.parts[0].tool != "" {
		delta = object{"type": "input_json_delta", "partial_json": text}
	}
	e.send("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta})
}

func (d *messagesDialect) last(e *events, _ int) {
	e.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
	e.send("message_delta", object{
		"type":  "message_delta",
		"delta": object{"stop_reason": d.stopReason(), "stop_sequence": nil},
		"usage": d.tokens(d.parts[0].sent),
	})
}

func (d *messagesDialect) end(e *events) {
	e.send("message_stop", object{"type": "message_stop"})
}

func (d *messagesDialect) whole() any {
	p := d.parts[0]
	return d.message([]object{d.block(p.text)}, d.stopReason(), d.tokens(p.sent))
}

func (d *messagesDialect) message(content []object, stop any, usage object) object {
	return object{
		"id": d.id, "type": "message", "role": "assistant", "model": d.model, "content": content,
		"stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
}
