// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import "net/http"

// health serves /health and /ping: an empty body, and status 200 even while the engine hangs.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if status := s.Fault().Health; status != 0 {
		w.WriteHeader(status)
		return
	}
	w.WriteHeader(http.StatusOK)
}

// load serves GET /load as with --enable-server-load-tracking.
func (s *Server) load(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{"server_load": s.inFlight.Load()})
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, object{"version": "0.0.0+vllmsim"})
}

// tokenize serves POST /tokenize without the engine.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var in struct {
		chatRequest
		Prompt *string `json:"prompt"`
	}
	if !decode(w, r, &in) {
		return
	}
	if _, fail := s.served(in.Model); fail != nil {
		writeError(w, r, fail)
		return
	}
	var text []byte
	switch {
	case in.Prompt != nil:
		text = []byte(*in.Prompt)
	case len(in.Messages) > 0:
		text = transcript(in.Tools, in.conversation())
	default:
		writeError(w, r, badRequest("Field required: prompt or messages"))
		return
	}
	ids := newDensity(s.cfg.BytesPerToken).ids(string(text))
	writeJSON(w, http.StatusOK, object{
		"count": len(ids), "max_model_len": s.cfg.MaxModelTokens, "tokens": ids, "token_strs": nil,
	})
}
