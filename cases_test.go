// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package loadaware

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// caseRow is a row of docs/cases.md.
type caseRow struct {
	tests  []string
	reason string
}

// readCases returns the rows of docs/cases.md by their case.
func readCases(t *testing.T) map[string]caseRow {
	t.Helper()
	quoted := regexp.MustCompile("`(Test\\w+)`")
	rows := map[string]caseRow{}
	for line := range strings.Lines(read(t, "docs/cases.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		id := strings.TrimSpace(cells[0])
		if !regexp.MustCompile(`^[CD]\d+$`).MatchString(id) {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("docs/cases.md: %s has %d cells, want 4", id, len(cells))
			continue
		}
		if _, ok := rows[id]; ok {
			t.Errorf("docs/cases.md: %s is there twice", id)
		}
		row := caseRow{reason: strings.TrimSpace(cells[3])}
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			row.tests = append(row.tests, m[1])
		}
		rows[id] = row
	}
	return rows
}

// caseTests returns the cases that the name of each TestCase function says it
// stands for.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (TestCase((?:[CD]\d+)+)[A-Z]\w*)\(`)
	tests := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			if _, ok := tests[m[1]]; ok {
				t.Errorf("%s is there twice", m[1])
			}
			tests[m[1]] = regexp.MustCompile(`[CD]\d+`).FindAllString(m[2], -1)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

// What went wrong in other routers is tested, or it is said why it cannot
// happen; and what the table says is there.
func TestCasesAreCovered(t *testing.T) {
	rows, tests := readCases(t), caseTests(t)
	if len(rows) < 50 {
		t.Fatalf("docs/cases.md has %d cases", len(rows))
	}
	for id, row := range rows {
		if len(row.tests) == 0 && row.reason == "" {
			t.Errorf("docs/cases.md: %s has neither a test nor a reason", id)
		}
		for _, name := range row.tests {
			if !slices.Contains(tests[name], id) {
				t.Errorf("docs/cases.md: %s names %s, which is not there or stands for other cases", id, name)
			}
		}
	}
	for name, ids := range tests {
		for _, id := range ids {
			if !slices.Contains(rows[id].tests, name) {
				t.Errorf("docs/cases.md does not name %s in the row of %s", name, id)
			}
		}
	}
}
