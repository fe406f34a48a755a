// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

// responsesRequest is what the server reads of a request of the Responses API.
type responsesRequest struct {
	Model        string `json:"model"`
	Input        any    `json:"input"`
	Instructions any    `json:"instructions"`
	Tools        []any  `json:"tools"`
	ToolChoice   any    `json:"tool_choice"`
	MaxTokens    *int   `json:"max_output_tokens"`
	Previous     string `json:"previous_response_id"`
	Store        *bool  `json:"store"`
	Background   bool   `json:"background"`
	Stream       bool   `json:"stream"`
}

// items returns the input as text.
func (in *responsesRequest) items() []message {
	parts, ok := in.Input.([]any)
	if !ok {
		return []message{{"user", contentText(in.Input)}}
	}
	var list []message
	for _, part := range parts {
		item, _ := part.(map[string]any)
		role, _ := item["role"].(string)
		switch {
		case role != "":
			list = append(list, message{role, contentText(item["content"])})
		case item["type"] == "function_call_output":
			list = append(list, message{"tool", contentText(item["output"])})
		case item["type"] == "function_call":
			list = append(list, message{"assistant", contentText(item["name"]) + contentText(item["arguments"])})
		default:
			list = append(list, message{"assistant", canonical(part)})
		}
	}
	return list
}

// createResponse serves POST /v1/responses. The instructions belong to one request; what follows them is stored and
// comes back with previous_response_id.
func (s *Server) createResponse(w http.ResponseWriter, r *http.Request, f Fault) {
	var in responsesRequest
	if !decode(w, r, &in) {
		return
	}
	var list []message
	if in.Previous != "" {
		previous := s.store.get(in.Previous)
		if previous == nil {
			writeError(w, r, noResponse(in.Previous))
			return
		}
		list = append(list, previous.conversation...)
	}
	if in.Input != nil {
		list = append(list, in.items()...)
	}
	a := asked{model: in.Model, maxTokens: in.MaxTokens, forced: forcedCall(in.Tools, in.ToolChoice, list)}
	if len(list) > 0 {
		rendered := list
		if in.Instructions != nil {
			rendered = append([]message{{"system", contentText(in.Instructions)}}, list...)
		}
		a.prompts = onePrompt(transcript(in.Tools, rendered))
	}
	g, fail := s.plan(r, "resp_", a)
	if fail != nil {
		writeError(w, r, fail)
		return
	}
	d := &responsesDialect{generation: g, in: &in, store: s.store, conversation: list}
	if in.Background && !in.Stream {
		s.serveBackground(w, d)
		return
	}
	s.serve(w, r, f, g, in.Stream, d)
}

// serveBackground answers at once and generates afterwards.
func (s *Server) serveBackground(w http.ResponseWriter, d *responsesDialect) {
	ctx, cancel := s.background()
	queued := d.body("queued")
	s.store.put(d.id, &stored{body: queued, conversation: d.conversation, cancel: cancel})
	go func() {
		defer s.tasks.Done()
		defer cancel()
		if err := s.follow(ctx, d.generation, nil, d); err == nil {
			d.whole()
		}
	}()
	writeJSON(w, http.StatusOK, queued)
}

// getResponse serves GET /v1/responses/{id}.
func (s *Server) getResponse(w http.ResponseWriter, r *http.Request) {
	if found := s.store.get(r.PathValue("id")); found != nil {
		writeJSON(w, http.StatusOK, found.body)
		return
	}
	writeError(w, r, noResponse(r.PathValue("id")))
}

// deleteResponse serves DELETE /v1/responses/{id}, which vLLM does not have and the OpenAI API does.
func (s *Server) deleteResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !s.store.remove(id) {
		writeError(w, r, noResponse(id))
		return
	}
	writeJSON(w, http.StatusOK, object{"id": id, "object": "response", "deleted": true})
}

// cancelResponse serves POST /v1/responses/{id}/cancel.
func (s *Server) cancelResponse(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	found := s.store.get(id)
	switch {
	case found == nil:
		writeError(w, r, noResponse(id))
	case found.cancel == nil:
		writeError(w, r, badRequest("Cannot cancel a synchronous response."))
	default:
		writeJSON(w, http.StatusOK, s.store.cancel(id))
	}
}
