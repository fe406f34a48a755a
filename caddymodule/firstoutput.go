// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import "bytes"

// sight is what an eventScanner has seen.
type sight uint8

const (
	// sightNothing is nothing that tells.
	sightNothing sight = iota
	// sightOutput is an event that shows that the prefill is done.
	sightOutput
	// sightError is an error in place of the response.
	sightError
)

// eventScanner finds the first event of an event stream that shows that the
// engine has finished the prefill, or that it has failed. Comments and events
// without data keep a connection open, pings do the same in the Messages API,
// and the Responses API announces a response before the engine has run. Its
// zero value is ready.
//
// It keeps the beginning of the current line and nothing else.
type eventScanner struct {
	line [96]byte
	len  int

	// name is what is known of the current event's name
	name eventName

	// failing says that the current line tells of an error, and fault reads in
	// every line whose fault that would be
	failing bool
	fault   faultReader

	// afterCR says that the last byte was a carriage return, which ends a line
	// by itself, but only once if a line feed follows
	afterCR bool
}

type eventName uint8

const (
	unnamed  eventName = iota
	early              // says nothing about the prefill
	failed             // says that there will be no response
	telltale           // says that the prefill is done
)

// eventNames are those that do not say that the prefill is done.
var eventNames = []struct {
	text []byte
	name eventName
}{
	{[]byte("ping"), early},
	{[]byte("response.created"), early},
	{[]byte("response.queued"), early},
	{[]byte("response.in_progress"), early},
	{[]byte("error"), failed},
	{[]byte("response.failed"), failed},
}

// scan takes the next bytes of the stream and reports what is in them. After
// anything but nothing it must not be called again. An error is reported at the
// end of its line, see [eventScanner.failing].
func (s *eventScanner) scan(p []byte) sight {
	for _, c := range p {
		if c == '\n' && s.afterCR {
			s.afterCR = false
			continue
		}
		s.afterCR = c == '\r'
		if c != '\n' && c != '\r' {
			// so much of a line tells; an event may fill many writes
			if s.take(c) && s.endLine() == sightOutput {
				return sightOutput
			}
			continue
		}
		if seen := s.endLine(); seen != sightNothing {
			return seen
		}
		s.len, s.fault = 0, faultReader{}
	}
	return sightNothing
}

// take takes a byte of a line, and reports whether no more of it is kept after
// this one.
func (s *eventScanner) take(c byte) (full bool) {
	s.fault.take(c)
	if s.len == len(s.line) {
		return false
	}
	s.line[s.len] = c
	s.len++
	return s.len == len(s.line)
}

// endLine looks at a line of which no more is to come or to be kept, and reports
// what it is part of.
func (s *eventScanner) endLine() sight {
	line := bytes.TrimPrefix(s.line[:s.len], []byte("\ufeff"))
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch {
	case len(line) == 0:
		s.name = unnamed
	case string(field) == "event":
		s.name = nameOf(value)
	case string(field) == "data" && len(value) > 0:
		switch s.dataOf(value) {
		case failed:
			s.failing = true
			return sightError
		case telltale:
			return sightOutput
		case unnamed, early:
		}
	}
	return sightNothing
}

// dataOf tells what an event says whose data begins like this.
func (s *eventScanner) dataOf(data []byte) eventName {
	if s.name == early || s.name == failed {
		return s.name
	}
	key, value := firstField(data)
	switch {
	case string(key) == "error" && len(value) > 0 && (value[0] == '{' || value[0] == '"'):
		return failed
	case s.name == unnamed && string(key) == "type" && len(value) > 0 && value[0] == '"':
		name, _, _ := bytes.Cut(value[1:], []byte(`"`))
		return nameOf(name)
	}
	return telltale
}

func nameOf(name []byte) eventName {
	for _, e := range eventNames {
		if bytes.Equal(name, e.text) {
			return e.name
		}
	}
	return telltale
}

// firstField returns the key that a JSON object begins with and what follows
// it, as in {"type":"ping"}; nothing if it does not begin with one.
func firstField(data []byte) (key, value []byte) {
	data = bytes.TrimLeft(data, "{ \t")
	if len(data) == 0 || data[0] != '"' {
		return nil, nil
	}
	key, value, _ = bytes.Cut(data[1:], []byte(`"`))
	return key, bytes.TrimLeft(value, " \t:")
}
