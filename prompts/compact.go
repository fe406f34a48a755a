// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package prompts

// compact adds a value as JSON without white space, its strings decoded, and
// charges for its bytes. Members named cache_control are left out at any
// depth: clients move them from turn to turn, and no engine sees them. It is
// one pass over the value, whatever its nesting.
func (c *chain) compact(v raw) {
	// a comma is written once it is known that something follows it, because
	// what follows may be left out
	comma, opened := false, true
	for i := 0; i < len(v); {
		b := v[i]
		if isSpace(b) || b == ',' {
			comma = comma || b == ',' && !opened
			i++
			continue
		}
		end := i + 1
		switch b {
		case '{', '[', ':':
		case '}', ']':
			comma = false
		default:
			end = v.end(i)
		}
		if past := v.pastCacheControl(i, end); past > 0 {
			i = past
			continue
		}
		if comma {
			c.plain([]byte{','})
		}
		c.token(v[i:end])
		comma, opened = false, b == '{' || b == '['
		i = end
	}
}

// token adds one token of JSON.
func (c *chain) token(v raw) {
	if v[0] != '"' {
		c.plain(v)
		return
	}
	c.plain([]byte{'"'})
	c.text(v)
	c.plain([]byte{'"'})
}

// pastCacheControl is where the member ends whose name is v[start:end], if that
// is a name and the member is to be left out, and 0 otherwise.
func (v raw) pastCacheControl(start, end int) int {
	if string(v[start:end]) != `"cache_control"` {
		return 0
	}
	i := end
	for i < len(v) && isSpace(v[i]) {
		i++
	}
	if i >= len(v) || v[i] != ':' {
		return 0
	}
	if i = v.gap(i); i >= len(v) {
		return i
	}
	return v.end(i)
}
