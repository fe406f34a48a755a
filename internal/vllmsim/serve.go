// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package vllmsim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// dialect is how an API writes a generation. A stream is begin, then for each part first, token for each of its tokens
// and last, then end; parts take turns. An unstreamed response is whole.
type dialect interface {
	begin(e *events) // before the engine runs
	first(e *events, i int)
	token(e *events, i int, text string)
	last(e *events, i int)
	end(e *events)
	whole() any
}

// serve runs a generation and writes it, streamed or at its end.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, f Fault, g *generation, stream bool, d dialect) {
	if f.Request == FaultErrorEvent {
		broken := &apiError{status: http.StatusInternalServerError, message: "EngineCore encountered an issue."}
		if stream {
			openEvents(w, f).failure(r, broken)
		} else {
			writeError(w, r, broken)
		}
		return
	}
	var e *events
	if stream {
		e = openEvents(w, f)
	}
	if f.Request == FaultHangAfterHeaders {
		hang(r.Context())
	}
	if stream {
		d.begin(e)
	}
	if err := s.follow(r.Context(), g, e, d); err != nil {
		panic(http.ErrAbortHandler)
	}
	switch {
	case stream:
		d.end(e)
	case f.Request == FaultResetMidStream:
		cutShort(w, d.whole())
	default:
		writeJSON(w, http.StatusOK, d.whole())
	}
}

// follow runs the parts of a generation through the engine and writes events as they come; e is nil for an unstreamed
// response. It returns early when the client has left or the engine has gone, and leaves nothing in the engine.
func (s *Server) follow(ctx context.Context, g *generation, e *events, d dialect) error {
	requests := make([]*Request, len(g.parts))
	for i, p := range g.parts {
		requests[i] = p.request
	}
	rank := s.ranks.next()
	c, err := rank.start(ctx, requests...)
	if err != nil {
		return err
	}
	defer rank.abort(c)
	for left := len(g.parts); left > 0; {
		news, err := rank.next(ctx, c)
		if err != nil {
			return err
		}
		for i, p := range g.parts {
			if p.advance(news[i], e, i, d) {
				left--
			}
		}
	}
	return nil
}

// advance writes what a part has produced since the last time and reports whether it has ended now.
func (p *part) advance(news progress, e *events, i int, d dialect) bool {
	if !news.shown || p.ended {
		return false
	}
	if !p.begun {
		p.begun, p.cached = true, news.cached
		if e != nil {
			d.first(e, i)
		}
	}
	for ; p.sent < news.tokens; p.sent++ {
		if e != nil {
			d.token(e, i, p.piece(p.sent))
		}
	}
	p.ended = news.done
	if p.ended && e != nil {
		d.last(e, i)
	}
	return p.ended
}

// cutShort sends the headers and half of a JSON document and resets the connection.
func cutShort(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		_, _ = w.Write(text[:len(text)/2])
		_ = http.NewResponseController(w).Flush()
	}
	reset(w)
}
