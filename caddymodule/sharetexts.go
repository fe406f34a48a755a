// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/cespare/xxhash/v2"

	"github.com/caddyserver/caddy/v2"
)

// shareTexts resolves the texts of a share option: placeholders and the files they
// name. It keeps the first error, which has no text of a secret.
type shareTexts struct {
	replacer *caddy.Replacer
	seen     *xxhash.Digest
	err      error
}

var errNoValue = errors.New("a placeholder has no value")

func newShareTexts() *shareTexts {
	return &shareTexts{replacer: caddy.NewReplacer(), seen: xxhash.New()}
}

// replace returns a text with its placeholders replaced, all of which must have a
// value.
func (t *shareTexts) replace(option, text string) string {
	value, err := t.replacer.ReplaceOrErr(text, true, true)
	t.see(option, value, err)
	return value
}

// secret is replace for a text that no error shows any part of: braces in it may be
// meant as they are.
func (t *shareTexts) secret(option, text string) string {
	value, err := t.replacer.ReplaceOrErr(text, true, true)
	if err != nil {
		err = errNoValue
	}
	t.see(option, value, err)
	return value
}

// file returns what is in the named file, and that name with its placeholders
// replaced.
func (t *shareTexts) file(option, name string) (path string, text []byte) {
	path = t.replace(option, name)
	if t.err != nil {
		return path, nil
	}
	text, err := os.ReadFile(path)
	t.see(option, string(text), err)
	return path, text
}

// see notes what an option has come to, or that it is wrong.
func (t *shareTexts) see(option, value string, err error) {
	fmt.Fprintf(t.seen, "%q", value)
	if err != nil {
		t.fail(option, err)
	}
}

func (t *shareTexts) fail(option string, err error) {
	if t.err == nil {
		t.err = fmt.Errorf("share redis %s: %w", option, err)
	}
}

// identity is a hash of the option and of all that its texts have come to.
func (t *shareTexts) identity(option any) uint64 {
	// a config that was read can be written
	text, _ := json.Marshal(option)
	_, _ = t.seen.Write(text)
	return t.seen.Sum64()
}
