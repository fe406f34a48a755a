// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

import "encoding/binary"

// maxDepth is how deep a body may be nested to be read. It bounds the stack;
// no API nests deeper than a tool's schema does.
const maxDepth = 512

// checker walks over JSON once and finds out whether it can be read. Every
// later step trusts what it let pass.
type checker struct {
	b   []byte
	i   int
	bad bool
}

// wellFormed says whether b is one JSON object, as the json module of Python
// understands it: NaN and Infinity are numbers, control characters in a string
// are errors, what a string holds need not be UTF-8. With cut, b may end
// anywhere within the object. The object's own members are given to each as
// they are met, what follows them may be wrong yet.
func wellFormed(b []byte, cut bool, each func(name, value raw)) bool {
	c := checker{b: b}
	c.space()
	if c.i < len(b) && b[c.i] != '{' {
		return false
	}
	if c.i == len(b) || !c.object(1, each) {
		return cut && !c.bad
	}
	c.space()
	return c.i == len(b)
}

// fail ends the walk: at the end of the input because it was cut there, and
// anywhere else because of what stands there.
func (c *checker) fail() bool {
	c.bad = c.i < len(c.b)
	return false
}

// space steps over white space.
func (c *checker) space() {
	for c.i < len(c.b) && isSpace(c.b[c.i]) {
		c.i++
	}
}

// next steps over white space and one byte, if that byte is want.
func (c *checker) next(want byte) bool {
	c.space()
	if c.i < len(c.b) && c.b[c.i] == want {
		c.i++
		return true
	}
	return false
}

// value steps over white space and a value that is nested depth levels deep.
func (c *checker) value(depth int) bool {
	c.space()
	if c.i >= len(c.b) || depth > maxDepth {
		return c.fail()
	}
	switch b := c.b[c.i]; b {
	case '{':
		return c.object(depth+1, nil)
	case '[':
		return c.array(depth + 1)
	case '"':
		return c.str()
	case 't':
		return c.literal("true")
	case 'f':
		return c.literal("false")
	case 'n':
		return c.literal("null")
	case 'N':
		return c.literal("NaN")
	case 'I':
		return c.literal("Infinity")
	default:
		return c.number()
	}
}

// object steps over an object and gives its members to each, if that is not
// nil.
func (c *checker) object(depth int, each func(name, value raw)) bool {
	c.i++
	if c.next('}') {
		return true
	}
	for {
		c.space()
		start := c.i
		if c.i >= len(c.b) || c.b[c.i] != '"' || !c.str() {
			return c.fail()
		}
		name := raw(c.b[start:c.i])
		if !c.next(':') {
			return c.fail()
		}
		c.space()
		start = c.i
		ok := c.value(depth)
		if each != nil {
			each(name, c.b[start:c.i])
		}
		if !ok {
			return false
		}
		if !c.next(',') {
			return c.next('}') || c.fail()
		}
	}
}

// array steps over an array.
func (c *checker) array(depth int) bool {
	c.i++
	if c.next(']') {
		return true
	}
	for {
		if !c.value(depth) {
			return false
		}
		if !c.next(',') {
			return c.next(']') || c.fail()
		}
	}
}

// literal steps over the word that begins here.
func (c *checker) literal(word string) bool {
	for k := range len(word) {
		if c.i >= len(c.b) || c.b[c.i] != word[k] {
			return c.fail()
		}
		c.i++
	}
	return true
}

// number steps over a number.
func (c *checker) number() bool {
	if c.b[c.i] == '-' {
		c.i++
		if c.i < len(c.b) && c.b[c.i] == 'I' {
			return c.literal("Infinity")
		}
	}
	start := c.i
	switch n := c.digits(); {
	case n == 0:
		return c.fail()
	case n > 1 && c.b[start] == '0':
		c.bad = true
		return false
	}
	if c.i < len(c.b) && c.b[c.i] == '.' {
		c.i++
		if c.digits() == 0 {
			return c.fail()
		}
	}
	if c.i < len(c.b) && c.b[c.i]|0x20 == 'e' {
		c.i++
		if c.i < len(c.b) && (c.b[c.i] == '+' || c.b[c.i] == '-') {
			c.i++
		}
		if c.digits() == 0 {
			return c.fail()
		}
	}
	return true
}

// digits steps over decimal digits and says how many there were.
func (c *checker) digits() int {
	start := c.i
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		c.i++
	}
	return c.i - start
}

// str steps over a string. Eight bytes at a time: nearly all of a prompt is
// inside of strings, and few of its bytes are special.
func (c *checker) str() bool {
	b, i := c.b, c.i+1
	for {
		for i+8 <= len(b) {
			if special(binary.LittleEndian.Uint64(b[i:])) {
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		c.i = i
		switch {
		case i >= len(b) || b[i] < ' ':
			return c.fail()
		case b[i] == '"':
			c.i++
			return true
		case !c.escape():
			return c.fail()
		}
		i = c.i
	}
}

// special says whether any of eight bytes is a quote, a backslash or a control
// character.
func special(x uint64) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	quote, slash := x^(ones*'"'), x^(ones*'\\')
	// a byte is zero if subtracting 1 borrows from its top bit, and it is a
	// control character if subtracting 32 does
	return ((quote-ones)&^quote|(slash-ones)&^slash|(x-ones*' ')&^x)&tops != 0
}

// escape steps over a backslash and what belongs to it.
func (c *checker) escape() bool {
	c.i++
	if c.i >= len(c.b) {
		return false
	}
	switch c.b[c.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		c.i++
		return true
	case 'u':
		c.i++
		for range 4 {
			if c.i >= len(c.b) || !isHex(c.b[c.i]) {
				return false
			}
			c.i++
		}
		return true
	default:
		return false
	}
}

func isSpace(b byte) bool {
	return b == ' ' || b == '\n' || b == '\r' || b == '\t'
}

func isHex(b byte) bool {
	return b-'0' <= 9 || b|0x20-'a' <= 5
}
