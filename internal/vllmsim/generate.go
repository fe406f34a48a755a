// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

// generateRequest is a prompt that is tokenized already, and its sampling parameters.
type generateRequest struct {
	Model    string   `json:"model"`
	TokenIDs []uint32 `json:"token_ids"`
	Sampling struct {
		MaxTokens *int `json:"max_tokens"`
	} `json:"sampling_params"`
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request, f Fault) {
	var in generateRequest
	if !decode(w, r, &in) {
		return
	}
	a := asked{model: in.Model, maxTokens: in.Sampling.MaxTokens, ids: true}
	if len(in.TokenIDs) > 0 {
		a.prompts = promptList{{idBytes(in.TokenIDs), true}}
	}
	g, fail := s.plan(r, "generate-tokens-", a)
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	s.serve(w, r, f, g, in.Stream, &generateDialect{g, s.tellsUsage(in.StreamOptions)})
}

// generateDialect writes token ids in place of text.
type generateDialect struct {
	*generation
	tellsUsage bool // a stream does
}

func (d *generateDialect) begin(*events)      {}
func (d *generateDialect) first(*events, int) {}

func (d *generateDialect) token(e *events, _ int, text string) {
	e.send("", d.body([]uint32{tokenID(text)}, nil))
}

func (d *generateDialect) last(e *events, _ int) {
	e.send("", d.body([]uint32{}, d.parts[0].finish))
}

func (d *generateDialect) end(e *events) {
	if d.tellsUsage {
		e.send("", object{"request_id": d.id, "choices": []object{}, "usage": d.usage()})
	}
	e.done()
}

func (d *generateDialect) whole() any {
	p := d.parts[0]
	out := d.body(p.ids(), p.finish)
	out["usage"] = d.usage()
	return out
}

func (d *generateDialect) body(ids []uint32, finish any) object {
	choice := object{"index": 0, "token_ids": ids, "logprobs": nil, "finish_reason": finish}
	return object{"request_id": d.id, "choices": []object{choice}, "prompt_logprobs": nil, "kv_transfer_params": nil}
}
