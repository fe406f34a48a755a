// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"net/http"

	"github.com/cespare/xxhash/v2"

	"github.com/caddy-llm/loadaware/fleet"
	"github.com/caddy-llm/loadaware/prompts"
)

// idWithin is how far into a response its id is looked for. It is among the
// first fields, in front of everything that may be long.
const idWithin = 4 << 10

// responseKey names a response by a hash of its id, 0 for no id.
func responseKey(id string) fleet.ResponseKey {
	if id == "" {
		return 0
	}
	return fleet.ResponseKey(xxhash.Sum64String(id))
}

// refersTo names the response that the request continues or asks for.
func (a *attempt) refersTo() fleet.ResponseKey {
	if a.response != "" {
		return responseKey(a.response)
	}
	return responseKey(a.prompt.PreviousResponse)
}

// keepsResponse looks at a response with a good status in plain text for what
// the upstream keeps: the response that was asked for, or the one that this is,
// whose id is yet to be read.
func (w *responseWriter) keepsResponse(status int) {
	a := w.attempt
	switch {
	case status >= http.StatusMultipleChoices || a.current == nil:
	case a.response != "":
		a.current.Keeps(responseKey(a.response))
	case a.prefills && a.endpoint.Name == "responses":
		w.id = &idScanner{events: w.events}
	}
}

// readID looks for the id in the next bytes of the response, until it has been
// found or cannot be any more.
func (w *responseWriter) readID(p []byte) {
	id, done := w.id.scan(p)
	if !done {
		return
	}
	w.id = nil
	if len(id) > 0 && w.attempt.current != nil {
		w.attempt.current.Keeps(responseKey(string(id)))
	}
}

// idScanner finds the id of a response of the Responses API as it passes: the
// field `id` of the object, or of the object `response` in an event of a stream.
// It keeps the current string and nothing else.
type idScanner struct {
	// events says that it is a stream, and seen is how much of it was
	events bool
	seen   int

	// depth is how many objects and arrays are open, and level the depth of the
	// object whose id is looked for, 0 while that is not open
	depth, level int

	// field is the last name that was read, and value says that what comes is a
	// value and no name
	field idField
	value bool

	// quoted is true within a string, of which text is the beginning; odd says
	// that it is longer, or has escapes, which neither an id nor the names have
	quoted, escaped, odd bool

	text [prompts.MaxValueBytes]byte
	len  int
}

type idField uint8

const (
	otherField idField = iota
	fieldID
	fieldResponse
)

// scan takes the next bytes of the response. It is done when the id was found,
// and when it is too late for it; the id is good until the next call.
func (s *idScanner) scan(p []byte) (id []byte, done bool) {
	for _, c := range p {
		if s.seen++; s.seen > idWithin {
			return nil, true
		}
		switch {
		case s.quoted:
			if s.inString(c) && s.endString() {
				return s.text[:s.len], true
			}
		case c == '{', c == '[' && (s.depth > 0 || !s.events):
			s.open()
		case s.depth == 0:
			// between events, where quotes mean nothing
		case c == '"':
			s.quoted, s.escaped, s.odd, s.len = true, false, false, 0
		case c == ':':
			s.value = true
		case c == ',':
			s.value = false
		case c == '}' || c == ']':
			if s.depth--; s.depth < s.level {
				s.level = 0
			}
			if s.depth == 0 && !s.events {
				return nil, true
			}
		}
	}
	return nil, false
}

// open enters an object or an array. An array takes no harm from being taken for
// an object: it has no names.
func (s *idScanner) open() {
	s.depth++
	if s.depth == 1 && !s.events || s.depth == 2 && s.events && s.value && s.field == fieldResponse {
		s.level = s.depth
	}
	s.value = false
}

// inString takes the next byte of a string and reports whether that has ended.
func (s *idScanner) inString(c byte) (ended bool) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '"':
		return true
	case c == '\\':
		s.escaped, s.odd = true, true
	}
	if s.len < len(s.text) {
		s.text[s.len] = c
		s.len++
	} else {
		s.odd = true
	}
	return false
}

// endString looks at a whole string and reports whether it is the id.
func (s *idScanner) endString() (found bool) {
	s.quoted = false
	if s.value {
		return s.depth == s.level && s.field == fieldID && !s.odd
	}
	s.field = otherField
	if s.odd {
		return false
	}
	switch string(s.text[:s.len]) {
	case "id":
		s.field = fieldID
	case "response":
		s.field = fieldResponse
	}
	return false
}
