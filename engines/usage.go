// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// maxUsageTokens is how many tokens a prompt may have for its usage to be
// believed: a hundred times the longest context of today's models.
const maxUsageTokens = 100_000_000

// ReadUsage finds the last usage object in the last bytes of a response that
// says how long its prompt was. The bytes may begin and end anywhere in a JSON
// body or in an event stream; an object that is not complete is passed over, and
// so is one whose numbers no prompt can have. Text that looks like usage inside
// a JSON string is none.
//
// It understands the usage of OpenAI's completions, chat completions and
// embeddings, of the Responses API and of Anthropic's messages, whose
// input_tokens leave out what came from the cache or went to it.
//
// It takes time in proportion to the bytes.
func ReadUsage(tail []byte) (Usage, bool) {
	for _, object := range slices.Backward(usageObjects(tail)) {
		if u, ok := decodeUsage(object); ok {
			return u, true
		}
	}
	return Usage{}, false
}

var usageKey = []byte(`"usage"`)

// usageObjects returns the objects that follow a usage key, in order. None lies
// in another.
func usageObjects(tail []byte) [][]byte {
	var objects [][]byte
	for at := 0; ; {
		key := bytes.Index(tail[at:], usageKey)
		if key < 0 {
			return objects
		}
		key += at
		at = key + len(usageKey)
		// Quotes inside a string are escaped. The one that ends the key is not,
		// and one before it that is belongs to a longer key.
		if key > 0 && tail[key-1] == '\\' {
			continue
		}
		rest, ok := bytes.CutPrefix(skipSpace(tail[at:]), []byte(":"))
		if rest = skipSpace(rest); !ok || len(rest) == 0 || rest[0] != '{' {
			continue
		}
		n, whole := skipObject(rest)
		if whole {
			objects = append(objects, rest[:n])
		}
		at = len(tail) - len(rest) + n
	}
}

func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// skipObject returns how many bytes the object at the beginning of b has. If it
// has no end, or something is in it that JSON does not have, it returns how many
// bytes need not be looked at again.
func skipObject(b []byte) (n int, whole bool) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch c := b[i]; c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, true
			}
		case '"':
			n, ended := skipString(b[i:])
			if i += n - 1; !ended {
				return i + 1, false
			}
		default:
			// the next line of an event stream begins with a letter that is in
			// no literal
			if strings.IndexByte("0123456789+-.eE:, \t\r\ntruefalsn", c) < 0 {
				return i, false
			}
		}
	}
	return len(b), false
}

// skipString returns how many bytes the string at the beginning of b has, or may
// have at most where it does not end in its line.
func skipString(b []byte) (n int, ended bool) {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1, true
		case '\n':
			return i, false
		}
	}
	return len(b), false
}

// details are the parts of a prompt.
type details struct {
	CachedTokens *int64 `json:"cached_tokens"`
}

// usage has the fields of all dialects.
type usage struct {
	PromptTokens  *int64   `json:"prompt_tokens"`
	PromptDetails *details `json:"prompt_tokens_details"`

	InputTokens   *int64   `json:"input_tokens"`
	InputDetails  *details `json:"input_tokens_details"`
	CacheRead     *int64   `json:"cache_read_input_tokens"`
	CacheCreation *int64   `json:"cache_creation_input_tokens"`
}

// decodeUsage reads a usage object. It reports false if that says nothing of a
// prompt, or nothing that can be: a prompt has at least one token.
func decodeUsage(object []byte) (Usage, bool) {
	var u usage
	if json.Unmarshal(object, &u) != nil {
		return Usage{}, false
	}
	for _, n := range []*int64{u.PromptTokens, u.InputTokens, u.CacheRead, u.CacheCreation} {
		if !believable(n) {
			return Usage{}, false
		}
	}
	prompt, cached := u.prompt()
	if prompt < 1 || prompt > maxUsageTokens || !believable(cached) {
		return Usage{}, false
	}
	read := Usage{PromptTokens: int(prompt)}
	if cached != nil && *cached <= prompt {
		read.CachedTokens = Known(float64(*cached))
	}
	return read, true
}

// prompt returns the length of the prompt, 0 if it is not there, and how much of
// it was cached, nil if that is not there.
func (u *usage) prompt() (tokens int64, cached *int64) {
	switch {
	case u.PromptTokens != nil:
		return *u.PromptTokens, u.PromptDetails.cached()
	case u.InputTokens == nil:
		return 0, nil
	case u.InputDetails != nil:
		return *u.InputTokens, u.InputDetails.cached()
	}
	tokens = *u.InputTokens
	for _, n := range []*int64{u.CacheRead, u.CacheCreation} {
		if n != nil {
			tokens += *n
		}
	}
	return tokens, u.CacheRead
}

func (d *details) cached() *int64 {
	if d == nil {
		return nil
	}
	return d.CachedTokens
}

// believable reports that a number is not there or may be one of tokens.
func believable(n *int64) bool { return n == nil || *n >= 0 && *n <= maxUsageTokens }
