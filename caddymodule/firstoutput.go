// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import "bytes"

// eventScanner finds the first event of an event stream that shows that the
// engine has finished the prefill. Comments and events without data keep a
// connection open, pings do the same in the Messages API, and the Responses API
// announces a response before the engine has run. Its zero value is ready.
//
// It keeps the beginning of the current line and nothing else.
type eventScanner struct {
	line [96]byte
	len  int

	// name is what is known of the current event's name
	name eventName

	// afterCR says that the last byte was a carriage return, which ends a line
	// by itself, but only once if a line feed follows
	afterCR bool
}

type eventName uint8

const (
	unnamed  eventName = iota
	early              // says nothing about the prefill
	telltale           // says that the prefill is done
)

// earlyEvents are sent before the engine has finished the prefill.
var earlyEvents = [][]byte{
	[]byte("ping"),
	[]byte("response.created"),
	[]byte("response.queued"),
	[]byte("response.in_progress"),
}

// scan takes the next bytes of the stream and reports whether the first output
// is in them.
func (s *eventScanner) scan(p []byte) bool {
	for _, c := range p {
		if c == '\n' && s.afterCR {
			s.afterCR = false
			continue
		}
		s.afterCR = c == '\r'
		if c != '\n' && c != '\r' {
			if s.len < len(s.line) {
				s.line[s.len] = c
				s.len++
				// so much of a line tells; an event may fill many writes
				if s.len == len(s.line) && s.endLine() {
					return true
				}
			}
			continue
		}
		if s.endLine() {
			return true
		}
		s.len = 0
	}
	return false
}

// endLine looks at a complete line and reports whether it is part of the first
// output.
func (s *eventScanner) endLine() bool {
	line := bytes.TrimPrefix(s.line[:s.len], []byte("\ufeff"))
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch {
	case len(line) == 0:
		s.name = unnamed
	case string(field) == "event":
		s.name = telltale
		if isEarly(value) {
			s.name = early
		}
	case string(field) == "data":
		return len(value) > 0 && (s.name == telltale || s.name == unnamed && !isEarly(eventType(value)))
	}
	return false
}

func isEarly(name []byte) bool {
	for _, e := range earlyEvents {
		if bytes.Equal(name, e) {
			return true
		}
	}
	return false
}

// eventType returns the type that the data of an unnamed event begins with, as
// in {"type":"ping"}.
func eventType(data []byte) []byte {
	data = bytes.TrimLeft(data, "{ \t")
	rest, ok := bytes.CutPrefix(data, []byte(`"type"`))
	if !ok {
		return nil
	}
	rest = bytes.TrimLeft(rest, " \t:")
	if len(rest) == 0 || rest[0] != '"' {
		return nil
	}
	name, _, _ := bytes.Cut(rest[1:], []byte(`"`))
	return name
}
