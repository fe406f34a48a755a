// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import (
	"bytes"
	"iter"
)

// raw is the text of one JSON value in a body that wellFormed let pass, from
// its first byte to its last. It is empty for a value that is not there. The
// last value of a body that was cut off ends where the body ends, and every
// method takes that end for the value's own.
type raw []byte

// kind is the value's first byte: '{', '[', '"', or another; 0 if there is no
// value, or null.
func (v raw) kind() byte {
	if len(v) == 0 || v[0] == 'n' {
		return 0
	}
	return v[0]
}

// or is the value, or other where there is none.
func (v raw) or(other raw) raw {
	if v.kind() == 0 {
		return other
	}
	return v
}

// members are the names, decoded, and values of an object in the order of the
// body, duplicates included; none for another kind.
func (v raw) members() iter.Seq2[raw, raw] {
	return func(yield func(name, value raw) bool) { eachMember(v, yield) }
}

func eachMember(v raw, yield func(name, value raw) bool) {
	if v.kind() != '{' {
		return
	}
	for i := v.gap(1); i < len(v) && v[i] == '"'; i = v.gap(i) {
		end := v.end(i)
		name := v[i:end]
		i = v.gap(end)
		if i >= len(v) {
			return
		}
		end = v.end(i)
		if !yield(name.short(), v[i:end]) {
			return
		}
		i = end
	}
}

// elements are the values of an array; none for another kind.
func (v raw) elements() iter.Seq[raw] {
	return func(yield func(value raw) bool) { eachElement(v, yield) }
}

func eachElement(v raw, yield func(value raw) bool) {
	if v.kind() != '[' {
		return
	}
	for i := v.gap(1); i < len(v) && v[i] != ']'; i = v.gap(i) {
		end := v.end(i)
		if !yield(v[i:end]) {
			return
		}
		i = end
	}
}

// first is the first element of an array, if there is one.
func (v raw) first() raw {
	if v.kind() != '[' {
		return nil
	}
	i := v.gap(1)
	if i >= len(v) || v[i] == ']' {
		return nil
	}
	return v[i:v.end(i)]
}

// get is the value of the first of names that an object has, and of several
// members with that name the last.
func (v raw) get(names ...string) raw {
	for _, want := range names {
		var found raw
		for name, value := range v.members() {
			if string(name) == want {
				found = value
			}
		}
		if found.kind() != 0 {
			return found
		}
	}
	return nil
}

// gap is where the next token begins, from i on over white space, commas and
// colons.
func (v raw) gap(i int) int {
	for i < len(v) && (isSpace(v[i]) || v[i] == ',' || v[i] == ':') {
		i++
	}
	return i
}

// end is where the value that begins at i ends.
func (v raw) end(i int) int {
	switch v[i] {
	case '"':
		return v.endOfString(i)
	case '{', '[':
		return v.endOfNest(i)
	}
	for i < len(v) && v[i] != ',' && v[i] != '}' && v[i] != ']' && !isSpace(v[i]) {
		i++
	}
	return i
}

func (v raw) endOfNest(i int) int {
	depth := 0
	for i < len(v) {
		switch v[i] {
		case '"':
			i = v.endOfString(i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}

func (v raw) endOfString(i int) int {
	start := i + 1
	for i = start; ; i++ {
		n := bytes.IndexByte(v[i:], '"')
		if n < 0 {
			return len(v)
		}
		i += n
		if !escapedAt(v[start:], i-start) {
			return i + 1
		}
	}
}

// escapedAt says whether an odd number of backslashes stands before s[i].
func escapedAt(s []byte, i int) bool {
	n := 0
	for n < i && s[i-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}
