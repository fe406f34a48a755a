// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The reference is what the doc comments say now.
func TestReferenceIsCurrent(t *testing.T) {
	want, err := generate(filepath.Join("..", "..", sourceFolder))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join("..", "..", referenceFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the doc comments say: run go generate ./internal/docgen", referenceFile)
	}
}

// What is set must be described, under the name that it has in JSON, and nothing
// is left out because docgen does not understand it.
func TestWhatCannotBeWritten(t *testing.T) {
	const module = `package p
// M is a module.
type M struct {
	%
}
// CaddyModule returns the Caddy module information.
func (M) CaddyModule() caddy.ModuleInfo { return caddy.ModuleInfo{ID: "a.m"} }
`
	tests := []struct{ name, field, err string }{
		{"written", "// N counts.\n N int `json:\"n\"`", ""},
		{"not a member", "// N counts.\n N int `json:\"-\"`", ""},
		{"no name", "// N counts.\n N int", "M.N has no name in JSON"},
		{"no doc comment", "N int `json:\"n\"`", "M: field n has no doc comment"},
		{"unknown type", "// N counts.\n N big.Int `json:\"n\"`", "M.n: docgen does not know what *ast.SelectorExpr is in JSON"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			text := strings.Replace(module, "%", test.field, 1)
			if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := generate(folder)
			if got := message(err); got != test.err {
				t.Errorf("generate() failed with %q, want %q", got, test.err)
			}
		})
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
