// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// inner is what stands between the quotes of a string, escapes and all; nil
// for another kind.
func (v raw) inner() raw {
	switch {
	case v.kind() != '"':
		return nil
	case v.closed():
		return v[1 : len(v)-1]
	}
	return v[1:]
}

// closed says whether a string has both its quotes, or whether an object or
// array ends as one does. A value that was cut off, or is not there, is not
// closed.
func (v raw) closed() bool {
	n := len(v) - 1
	if n < 1 {
		return false
	}
	switch v[0] {
	case '"':
		return v[n] == '"' && !escapedAt(v[1:], n-1)
	case '{':
		return v[n] == '}'
	case '[':
		return v[n] == ']'
	}
	return true
}

// text is the decoded string. It is empty if the value is not a string, is
// longer than MaxValueBytes, or was cut off.
func (v raw) text() string {
	s := v.short()
	if !v.closed() || len(s) > MaxValueBytes {
		return ""
	}
	return string(s)
}

// short is the decoded string, or what inner is if that is too long for a
// short one: no escape is more than six times as long as what it stands for.
func (v raw) short() []byte {
	s := v.inner()
	if len(s) > 6*MaxValueBytes || bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	return decoded(make([]byte, 0, len(s)), s)
}

// decoded appends the inner text s of a string to dst, without its escapes.
func decoded(dst, s []byte) []byte {
	for len(s) > 0 {
		n := bytes.IndexByte(s, '\\')
		if n < 0 {
			return append(dst, s...)
		}
		dst = append(dst, s[:n]...)
		r, used := unescape(s[n:])
		if r >= 0 {
			dst = utf8.AppendRune(dst, r)
		}
		s = s[n+used:]
	}
	return dst
}

// unescape is the character that the escape at the beginning of s stands for,
// and the escape's length. It is -1 for an escape that was cut off, and U+FFFD
// for half of a surrogate pair.
func unescape(s []byte) (r rune, used int) {
	if len(s) < 2 {
		return -1, len(s)
	}
	switch s[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = hex4(s)
		if r < 0 {
			return -1, len(s)
		}
		if utf16.IsSurrogate(r) {
			if pair := utf16.DecodeRune(r, hex4(s[6:])); pair != utf8.RuneError {
				return pair, 12
			}
			return utf8.RuneError, 6
		}
		return r, 6
	default:
		return rune(s[1]), 2
	}
}

// hex4 is the number in an escape of the form \uXXXX, or -1.
func hex4(s []byte) (r rune) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return -1
	}
	for _, b := range s[2:6] {
		switch {
		case b-'0' <= 9:
			r = r<<4 | rune(b-'0')
		default:
			r = r<<4 | rune(b|0x20-'a'+10)
		}
	}
	return r
}
