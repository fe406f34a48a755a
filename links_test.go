// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package loadaware

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// documents returns the names of the Markdown files of the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case filepath.Ext(name) == ".md":
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// anchors returns the anchors of the headings of a document, as GitHub makes them.
func anchors(text string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(m[1]))
		unique := anchor
		for n := 1; slices.Contains(list, unique); n++ {
			unique = fmt.Sprintf("%s-%d", anchor, n)
		}
		list = append(list, unique)
	}
	return list
}

// Every link from one document to another, or to a heading, leads somewhere.
func TestLinks(t *testing.T) {
	names := documents(t)
	found := 0
	for _, name := range names {
		text := codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(read(t, name), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if target.Scheme != "" {
				continue
			}
			found++
			to := name
			if target.Path != "" {
				to = path.Join(path.Dir(name), target.Path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
				continue
			}
			if target.Fragment != "" && !slices.Contains(anchors(read(t, to)), target.Fragment) {
				t.Errorf("%s: %s has no heading for the link to %s", name, to, m[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d links were found in %q", found, names)
	}
}
