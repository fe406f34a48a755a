// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import "net/http"

// faultReader reads in the data of an error event what status the error would
// have had, had it come before the response. Of the JSON it looks at the values
// of the keys code and type, wherever they stand: they follow a message that may
// be of any length. Its zero value is ready, and it keeps one short value.
type faultReader struct {
	text [32]byte
	len  int

	// value is what the next value tells, and key that the last string may
	// turn out to be a key
	value             faultValue
	key               bool
	quoted, backslash bool

	// number is the number being read, and status what was found, 0 for nothing
	number, status int
}

// faultValue is what a value in an error event tells.
type faultValue uint8

const (
	faultNothing faultValue = iota // or no value is read
	faultCode
	faultType
	faultOther
)

// faultTypes are the statuses that types and codes of errors in words stand for.
// What is not listed is the server's fault.
var faultTypes = map[string]int{
	"BadRequestError":          http.StatusBadRequest,
	"Bad Request":              http.StatusBadRequest,
	"invalid_request_error":    http.StatusBadRequest,
	"invalid_prompt":           http.StatusBadRequest,
	"context_length_exceeded":  http.StatusBadRequest,
	"request_too_large":        http.StatusBadRequest,
	"UnprocessableEntityError": http.StatusBadRequest,
	"NotFoundError":            http.StatusBadRequest,
	"not_found_error":          http.StatusBadRequest,
	"authentication_error":     http.StatusBadRequest,
	"permission_error":         http.StatusBadRequest,
	"rate_limit_error":         http.StatusBadRequest,
	"rate_limit_exceeded":      http.StatusBadRequest,
	"overloaded_error":         http.StatusServiceUnavailable,
}

// take takes the next byte of the event's line.
func (f *faultReader) take(c byte) {
	if f.quoted {
		f.takeQuoted(c)
		return
	}
	switch {
	case c == '"':
		f.quoted, f.len, f.key = true, 0, false
	case c == ':' && f.key:
		f.value, f.key, f.number = f.valueOf(), false, 0
	case c >= '0' && c <= '9' && f.value == faultCode:
		f.number = min(10*f.number+int(c-'0'), 1000)
	case c == ',' || c == '}' || c == ']':
		f.end()
	case c == '{' || c == '[':
		f.value = faultNothing
	}
}

// takeQuoted takes a byte of a string.
func (f *faultReader) takeQuoted(c byte) {
	switch {
	case f.backslash:
		f.backslash = false
	case c == '\\':
		f.backslash = true
	case c == '"':
		f.quoted = false
		if f.value == faultNothing {
			f.key = true
			return
		}
		if f.value != faultOther {
			f.note(faultTypes[string(f.text[:min(f.len, len(f.text))])])
		}
		f.value = faultNothing
		return
	}
	if f.len < len(f.text) {
		f.text[f.len] = c
	}
	f.len++
}

// valueOf tells of which key the last string is.
func (f *faultReader) valueOf() faultValue {
	switch string(f.text[:min(f.len, len(f.text))]) {
	case "code":
		return faultCode
	case "type":
		return faultType
	}
	return faultOther
}

// end ends a value that is no string.
func (f *faultReader) end() {
	if f.value == faultCode {
		f.note(f.number)
	}
	f.value, f.key = faultNothing, false
}

// note notes a status that was found. The first one counts.
func (f *faultReader) note(status int) {
	switch {
	case f.status != 0 || status < 400 || status >= 600:
	case status < 500:
		// whatever the client did wrong, the engine did nothing wrong
		f.status = http.StatusBadRequest
	default:
		f.status = status
	}
}

// result is the status, 500 where the event does not tell.
func (f *faultReader) result() int {
	if f.status == 0 {
		return http.StatusInternalServerError
	}
	return f.status
}
