// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is a file that tells users something.
type page struct{ name, text string }

// manual is README.md and what is in docs.
func manual(t *testing.T) []page {
	t.Helper()
	names, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 0 {
		t.Fatal("there is nothing in docs")
	}
	return readPages(t, append(names, "../README.md"))
}

// everyPage is every file that a user may copy from: the Markdown of the whole
// repository and what is in examples.
func everyPage(t *testing.T) []page {
	t.Helper()
	var names []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		example := strings.HasPrefix(path, filepath.Join("..", "examples")+string(filepath.Separator))
		if filepath.Ext(path) == ".md" || example && filepath.Ext(path) != ".go" {
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return readPages(t, names)
}

func readPages(t *testing.T, names []string) []page {
	t.Helper()
	pages := make([]page, len(names))
	for i, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages[i] = page{strings.TrimPrefix(filepath.ToSlash(name), "../"), string(text)}
	}
	return pages
}

// row is a row of a table. Its first cell is what it is about.
type row struct {
	page  string
	cells []string
}

// tables returns the rows of all tables whose first column has that title.
func tables(pages []page, title string) (rows []row) {
	for _, p := range pages {
		inside := false
		for line := range strings.Lines(p.text) {
			cells := cellsOf(line)
			switch {
			case cells == nil:
				inside = false
			case !inside && cells[0] == title:
				inside = true
			case inside && strings.Trim(cells[0], "-: ") != "":
				rows = append(rows, row{p.name, cells})
			}
		}
	}
	return rows
}

// cellsOf returns the cells of a line, nil where it is none of a table.
func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

var codeWord = regexp.MustCompile("`([^`]+)`")

// codeWords are what stands between backticks, in order.
func codeWords(text string) (words []string) {
	for _, m := range codeWord.FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// compare fails for what only one side has.
func compare(t *testing.T, got, want []string, missing, tooMuch string) {
	t.Helper()
	for _, s := range want {
		if !slices.Contains(got, s) {
			t.Errorf("%s %s", s, missing)
		}
	}
	for _, s := range got {
		if !slices.Contains(want, s) {
			t.Errorf("%s %s", s, tooMuch)
		}
	}
	sorted := slices.Sorted(slices.Values(got))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			t.Errorf("%s is there twice", sorted[i])
		}
	}
}
