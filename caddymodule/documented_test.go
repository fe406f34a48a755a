// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Every option that a Caddyfile may have is in one table, with its default, and
// no table has one that does not exist.
func TestOptionsAreDocumented(t *testing.T) {
	code := readCode(t)
	if len(code.options) < 25 {
		t.Fatalf("only %v options were found in the code: %v", len(code.options), code.options)
	}
	var documented []string
	for _, r := range tables(manual(t), "option") {
		if len(r.cells) != 3 || r.cells[1] == "" || r.cells[2] == "" {
			t.Errorf("%s: the row of %s has no default or no meaning", r.page, r.cells[0])
		}
		documented = append(documented, strings.Join(codeWords(r.cells[0]), " "))
	}
	compare(t, documented, code.options, "is in no table of options", "is in a table of options, and the Caddyfile has no such option")
}

// The syntax in the README is that of the doc comments, which name every option.
func TestSyntaxIsDocumented(t *testing.T) {
	code := readCode(t)
	readme := strings.Join(strings.Fields(readPages(t, []string{"../README.md"})[0].text), " ")
	for receiver, doc := range code.syntaxes {
		syntax := syntaxOf(doc)
		if syntax == "" {
			t.Errorf("the doc comment of UnmarshalCaddyfile of %s shows no syntax", receiver)
		}
		if whole := strings.Join(strings.Fields(syntax), " "); !strings.Contains(readme, whole) {
			t.Errorf("README.md does not show the syntax of %s:\n%s", receiver, syntax)
		}
		parent := code.parents[receiver]
		for _, option := range code.options {
			if name, ok := strings.CutPrefix(option, parent); ok && parent != "" && !strings.Contains(name, " ") &&
				!strings.Contains(syntax, name) {
				t.Errorf("the syntax of %s does not have %s", receiver, name)
			}
		}
	}
	all := strings.Join(slices.Collect(maps.Values(code.syntaxes)), "\n")
	for _, option := range code.options {
		words := strings.Fields(option)
		if !regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(words[len(words)-1]) + `\b`).MatchString(all) {
			t.Errorf("no doc comment of UnmarshalCaddyfile has %s", option)
		}
	}
	for _, directive := range code.directives {
		if !regexp.MustCompile(`(?m)^\s+` + regexp.QuoteMeta(directive) + `\b`).MatchString(all) {
			t.Errorf("no doc comment of UnmarshalCaddyfile shows the directive %s", directive)
		}
	}
}

// syntaxOf returns the indented part of a doc comment.
func syntaxOf(doc string) string {
	_, doc, _ = strings.Cut(doc, "Syntax:\n\n")
	var syntax strings.Builder
	for line := range strings.Lines(doc) {
		if !strings.HasPrefix(line, "\t") {
			break
		}
		syntax.WriteString(line)
	}
	return syntax.String()
}

var describedSeries = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// seriesInCode returns the name of every series the collector may export, with
// those of its labels that not every series has.
func seriesInCode(t *testing.T) (names, rows []string) {
	t.Helper()
	for _, desc := range descs {
		m := describedSeries.FindStringSubmatch(desc.String())
		if m == nil {
			t.Fatalf("cannot read %s", desc)
		}
		name, labels := m[1], strings.Split(m[2], ",")
		labels = slices.DeleteFunc(labels, func(l string) bool { return l == "fleet" || l == "upstream" })
		names = append(names, name)
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ", ") + "}"
		}
		rows = append(rows, name)
	}
	return names, rows
}

// Every series is in one table, with its labels and all that they may be, and no
// page names one that does not exist.
func TestSeriesAreDocumented(t *testing.T) {
	names, want := seriesInCode(t)
	values := labelValues(t)
	var documented []string
	for _, r := range tables(manual(t), "series") {
		series := strings.Join(codeWords(r.cells[0]), " ")
		documented = append(documented, series)
		name, _, labeled := strings.Cut(series, "{")
		if labeled {
			words := codeWords(r.cells[1])
			compare(t, words, values[name], "is a label of "+name+" that its row does not have",
				"is in the row of "+name+", which has no such label")
		}
	}
	compare(t, documented, want, "is in no table of series", "is in a table of series and not in the code")

	for _, p := range everyPage(t) {
		for _, name := range regexp.MustCompile(`caddy_llm_loadaware_\w*`).FindAllString(p.text, -1) {
			if !slices.ContainsFunc(names, func(n string) bool { return namesSeries(n, name) }) {
				t.Errorf("%s names the series %s, which does not exist", p.name, name)
			}
		}
	}
}

// namesSeries reports that a word on a page names the series: by its name, by one of a
// histogram's parts, or by the beginning of several names.
func namesSeries(series, word string) bool {
	part, ok := strings.CutPrefix(word, series)
	return ok && slices.Contains([]string{"", "_bucket", "_sum", "_count"}, part) ||
		strings.HasSuffix(word, "_") && strings.HasPrefix(series, word)
}

// labelValues returns what the labels of each series are, but for the fleet and
// the upstream, as the collector exports them.
func labelValues(t *testing.T) map[string][]string {
	t.Helper()
	now := time.Now()
	f := newFleet(t, "a")
	f.Observe("a", fullReport(), now, time.Minute)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				known := values[family.GetName()]
				if label.GetName() != "fleet" && label.GetName() != "upstream" && !slices.Contains(known, label.GetValue()) {
					values[family.GetName()] = append(known, label.GetValue())
				}
			}
		}
	}
	return values
}

// The placeholders that the code sets are those of the README and of the table at
// LoadAwareSelection, and no page uses another one.
func TestPlaceholdersAreDocumented(t *testing.T) {
	code := readCode(t)
	if len(code.placeholders) < 5 {
		t.Fatalf("only the placeholders %v were found in the code", code.placeholders)
	}
	placeholder := regexp.MustCompile(`\{(http\.llm_loadaware\.\w*)\}`)
	for _, p := range append(everyPage(t), page{"the doc comment of LoadAwareSelection", code.comments["LoadAwareSelection"]}) {
		var used []string
		for _, m := range placeholder.FindAllStringSubmatch(p.text, -1) {
			used = append(used, m[1])
			if !slices.Contains(code.placeholders, m[1]) {
				t.Errorf("%s uses {%s}, which nobody sets", p.name, m[1])
			}
		}
		for _, name := range code.placeholders {
			complete := p.name == "README.md" || strings.HasPrefix(p.name, "the doc comment")
			if complete && !slices.Contains(used, name) {
				t.Errorf("%s does not have {%s}", p.name, name)
			}
		}
	}
}

// What is logged above debug is listed, and nothing else.
func TestMessagesAreDocumented(t *testing.T) {
	var documented []string
	for _, r := range tables(manual(t), "message") {
		documented = append(documented, strings.Join(codeWords(r.cells[0]), " "))
	}
	compare(t, documented, readCode(t).messages, "is logged and in no table of messages", "is in a table of messages and never logged")
}
