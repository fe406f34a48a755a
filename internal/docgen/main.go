// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

// Command docgen writes docs/reference.md from the doc comments of package
// caddymodule: the fields of each module's configuration as they are in JSON, its
// syntax in a Caddyfile, and the answers of the admin endpoint. A test fails
// while the file is another than what it would write.
//
//	go run ./internal/docgen
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run .

// The files below the root of the module that docgen reads and writes.
const (
	sourceFolder  = "caddymodule"
	referenceFile = "docs/reference.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func run() error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	text, err := generate(filepath.Join(root, sourceFolder))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, filepath.FromSlash(referenceFile)), text, 0o644)
}

// generate returns the reference of the package in the folder.
func generate(folder string) ([]byte, error) {
	source, err := readSource(folder)
	if err != nil {
		return nil, err
	}
	return render(source)
}

// findRoot returns the folder of the module, which is above the working folder or
// the same.
func findRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no go.mod in this folder or above it")
		}
		folder = parent
	}
}
