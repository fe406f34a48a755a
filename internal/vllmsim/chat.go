// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

// chatRequest is what the server reads of a chat completion request.
type chatRequest struct {
	Model               string        `json:"model"`
	Messages            []chatMessage `json:"messages"`
	Tools               []any         `json:"tools"`
	ToolChoice          any           `json:"tool_choice"`
	MaxTokens           *int          `json:"max_tokens"`
	MaxCompletionTokens *int          `json:"max_completion_tokens"`
	Stream              bool          `json:"stream"`
	StreamOptions       streamOptions `json:"stream_options"`
}

type chatMessage struct {
	Role      string `json:"role"`
	Content   any    `json:"content"`
	ToolCalls any    `json:"tool_calls"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// conversation returns the messages as text.
func (in *chatRequest) conversation() []message {
	list := make([]message, len(in.Messages))
	for i, m := range in.Messages {
		text := contentText(m.Content)
		if m.ToolCalls != nil {
			text += canonical(m.ToolCalls)
		}
		list[i] = message{m.Role, text}
	}
	return list
}

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request, f Fault) {
	var in chatRequest
	if !decode(w, r, &in) {
		return
	}
	if len(in.Messages) == 0 {
		writeError(w, r, badRequest("Field required: messages"))
		return
	}
	list := in.conversation()
	a := asked{model: in.Model, prompts: onePrompt(transcript(in.Tools, list)), maxTokens: in.MaxCompletionTokens}
	if a.maxTokens == nil {
		a.maxTokens = in.MaxTokens
	}
	a.forced = forcedCall(in.Tools, in.ToolChoice, list)
	g, fail := s.plan(r, "chatcmpl-", a)
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	s.serve(w, r, f, g, in.Stream, &chatDialect{g, s.tellsUsage(in.StreamOptions)})
}

// chatDialect writes chat completions.
type chatDialect struct {
	*generation
	tellsUsage bool // a stream does
}

func (d *chatDialect) begin(*events) {}

func (d *chatDialect) first(e *events, _ int) {
	d.delta(e, object{"role": "assistant", "content": ""}, nil)
	if p := d.parts[0]; p.tool != "" {
		d.delta(e, object{"tool_calls": []object{{
			"index": 0, "id": callID(d.id), "type": "function", "function": object{"name": p.tool, "arguments": ""},
		}}}, nil)
	}
}

func (d *chatDialect) token(e *events, _ int, text string) {
	if d.parts[0].tool != "" {
		d.delta(e, object{"tool_calls": []object{{"index": 0, "function": object{"arguments": text}}}}, nil)
		return
	}
	d.delta(e, object{"content": text}, nil)
}

func (d *chatDialect) last(e *events, _ int) {
	d.delta(e, object{}, d.parts[0].finish)
}

func (d *chatDialect) end(e *events) {
	if d.tellsUsage {
		chunk := d.envelope("chat.completion.chunk", []object{})
		chunk["usage"] = d.usage()
		e.send("", chunk)
	}
	e.done()
}

func (d *chatDialect) delta(e *events, delta object, finish any) {
	choice := object{"index": 0, "delta": delta, "logprobs": nil, "finish_reason": finish}
	e.send("", d.envelope("chat.completion.chunk", []object{choice}))
}

func (d *chatDialect) whole() any {
	p := d.parts[0]
	said := object{"role": "assistant", "content": p.text, "tool_calls": []object{}}
	if p.tool != "" {
		said["content"] = nil
		said["tool_calls"] = []object{{
			"id": callID(d.id), "type": "function", "function": object{"name": p.tool, "arguments": p.text},
		}}
	}
	choice := object{"index": 0, "message": said, "logprobs": nil, "finish_reason": p.finish}
	out := d.envelope("chat.completion", []object{choice})
	out["usage"] = d.usage()
	return out
}

// envelope returns what the chunks and bodies of both completion APIs have in common.
func (g *generation) envelope(kind string, choices []object) object {
	return object{"id": g.id, "object": kind, "created": g.created, "model": g.model, "choices": choices}
}

// callID returns the id of the only tool call of a response.
func callID(id string) string { return "call_" + id }
