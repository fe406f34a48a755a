// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net/http"

	"github.com/cespare/xxhash/v2"

	"github.com/caddy-llm/loadaware/prompts"
	"github.com/caddy-llm/loadaware/sessions"
)

// defaultSessionHeaders are the headers in which known clients name a session,
// best first: a generic one, Claude Code, Codex twice, OpenCode, Open WebUI and
// LiteLLM. None is new for each request.
var defaultSessionHeaders = []string{
	"X-Session-ID",
	"X-Claude-Code-Session-Id",
	"Session-Id",
	"Thread-Id",
	"X-Session-Affinity",
	"X-OpenWebUI-Chat-Id",
	"X-Litellm-Session-Id",
}

// canonicalHeaders returns fields in the form that http.Header has them in.
func canonicalHeaders(fields []string) []string {
	canonical := make([]string, len(fields))
	for i, field := range fields {
		canonical[i] = http.CanonicalHeaderKey(field)
	}
	return canonical
}

// sessionKey names the session of a request: by the first of fields that is
// present, else by what the body says. Values longer than
// prompts.MaxValueBytes are no session's name. Only the hash is kept, so that
// what a client sent is never stored, logged or exported. The model is part of
// it because a model and its adapter share no KV cache.
//
// shared says that the name may be one for many conversations: the body's hints
// are, but for session_id, often one for each application or user.
func sessionKey(fleetName string, fields []string, header http.Header, p *prompts.Prompt) (key sessions.Key, shared bool) {
	for _, field := range fields {
		if values := header[field]; len(values) > 0 && values[0] != "" && len(values[0]) <= prompts.MaxValueBytes {
			return hashSession(fleetName, p.Model, field, values[0]), false
		}
	}
	if len(p.Hints) == 0 {
		return 0, false
	}
	hint := p.Hints[0]
	return hashSession(fleetName, p.Model, hint.Source, hint.Value), hint.Source != "session_id"
}

func hashSession(parts ...string) sessions.Key {
	var d xxhash.Digest
	d.Reset()
	for _, part := range parts {
		// writing to a digest cannot fail; the zero byte keeps the parts apart
		_, _ = d.WriteString(part)
		_, _ = d.Write([]byte{0})
	}
	return sessions.Key(d.Sum64())
}
