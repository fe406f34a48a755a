// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

type completionRequest struct {
	Model         string        `json:"model"`
	Prompt        promptList    `json:"prompt"`
	MaxTokens     *int          `json:"max_tokens"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request, f Fault) {
	var in completionRequest
	if !decode(w, r, &in) {
		return
	}
	g, fail := s.plan(r, "cmpl-", asked{model: in.Model, prompts: in.Prompt, maxTokens: in.MaxTokens})
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	s.serve(w, r, f, g, in.Stream, &completionDialect{g, s.tellsUsage(in.StreamOptions)})
}

// completionDialect writes completions; it is the only one with several parts that stream.
type completionDialect struct {
	*generation
	tellsUsage bool // a stream does
}

func (d *completionDialect) begin(*events)      {}
func (d *completionDialect) first(*events, int) {}

func (d *completionDialect) token(e *events, i int, text string) {
	e.send("", d.envelope("text_completion", []object{choiceOf(i, text, nil)}))
}

func (d *completionDialect) last(e *events, i int) {
	e.send("", d.envelope("text_completion", []object{choiceOf(i, "", d.parts[i].finish)}))
}

func (d *completionDialect) end(e *events) {
	if d.tellsUsage {
		chunk := d.envelope("text_completion", []object{})
		chunk["usage"] = d.usage()
		e.send("", chunk)
	}
	e.done()
}

func (d *completionDialect) whole() any {
	choices := make([]object, len(d.parts))
	for i, p := range d.parts {
		choices[i] = choiceOf(i, p.text, p.finish)
	}
	out := d.envelope("text_completion", choices)
	out["usage"] = d.usage()
	return out
}

func choiceOf(i int, text string, finish any) object {
	return object{"index": i, "text": text, "logprobs": nil, "finish_reason": finish, "stop_reason": nil}
}
