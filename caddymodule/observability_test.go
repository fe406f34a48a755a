// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const observability = "../examples/observability/"

// query is an expression for Prometheus. words are labels that belong to its
// series too, as a legend has them.
type query struct {
	where, expr string
	words       []string
}

var legendLabel = regexp.MustCompile(`\{\{ *\$?(?:labels\.)?(\w+) *\}\}`)

// dashboardQueries are those of the panels and of the variables.
func dashboardQueries(t *testing.T) (list []query) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct {
				Expr, LegendFormat string
				Datasource         struct{ UID string }
			}
		}
		Templating struct {
			List []struct{ Name, Type, Definition string }
		}
	}
	if err := json.Unmarshal([]byte(readPages(t, []string{observability + "dashboard.json"})[0].text), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			q := query{where: "panel " + p.Title, expr: target.Expr}
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				q.words = append(q.words, m[1])
			}
			list = append(list, q)
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("%s has the data source %q, want the one that is chosen", q.where, target.Datasource.UID)
			}
			if !strings.Contains(q.expr, `fleet=~"$fleet"`) {
				t.Errorf("%s is not of the chosen fleet", q.where)
			}
		}
	}
	var variables []string
	for _, v := range dashboard.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
		if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); m != nil {
			list = append(list, query{"variable " + v.Name, m[1], []string{m[2]}})
		}
	}
	if want := []string{"datasource datasource", "fleet query", "upstream query"}; !slices.Equal(variables, want) {
		t.Errorf("variables of the dashboard = %q, want %q", variables, want)
	}
	return list
}

// ruleQueries are those of the alerts. It fails for one without a test that fires.
func ruleQueries(t *testing.T) (list []query) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(readPages(t, []string{observability + "rules.yaml"})[0].text), &rules); err != nil {
		t.Fatal(err)
	}
	tests := strings.ReplaceAll(readPages(t, []string{observability + "rules_test.yaml"})[0].text, " ", "")
	readme := readPages(t, []string{observability + "README.md"})[0].text
	for _, r := range rules.Groups[0].Rules {
		q := query{where: "alert " + r.Alert, expr: r.Expr}
		for _, text := range r.Annotations {
			for _, m := range legendLabel.FindAllStringSubmatch(text, -1) {
				if m[1] != "value" {
					q.words = append(q.words, m[1])
				}
			}
		}
		list = append(list, q)
		if !strings.Contains(tests, "alertname:"+r.Alert+"\nexp_alerts:") || !strings.Contains(tests, "alertname:"+r.Alert+"}") {
			t.Errorf("rules_test.yaml has no series that fires %s, or none that does not", r.Alert)
		}
		if !strings.Contains(readme, "| `"+r.Alert+"` |") {
			t.Errorf("README.md does not explain %s", r.Alert)
		}
	}
	return list
}

// labelsInCode returns the labels of every series, by the names of its parts.
func labelsInCode(t *testing.T) map[string][]string {
	t.Helper()
	labels := map[string][]string{}
	for _, desc := range descs {
		m := describedSeries.FindStringSubmatch(desc.String())
		list := strings.Split(m[2], ",")
		labels[m[1]] = list
		if strings.HasSuffix(m[1], "_seconds") {
			delete(labels, m[1])
			labels[m[1]+"_sum"], labels[m[1]+"_count"] = list, list
			labels[m[1]+"_bucket"] = append(slices.Clone(list), "le")
		}
	}
	return labels
}

var (
	selector = regexp.MustCompile(`(caddy_llm_loadaware_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+) *(?:=~|!~|!=|=) *"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|on|without|ignoring) *\(([^)]*)\)`)
)

// What the dashboard and the alerts ask for exists, with these labels and values,
// and there is no series that nobody asks for or that the README does not explain.
func TestObservability(t *testing.T) {
	labels, values := labelsInCode(t), labelValues(t)
	used := map[string]bool{}
	queries := append(dashboardQueries(t), ruleQueries(t)...)
	if len(queries) < 35 {
		t.Fatalf("only %d queries were found", len(queries))
	}
	for _, q := range queries {
		words := slices.Clone(q.words)
		for _, m := range grouping.FindAllStringSubmatch(q.expr, -1) {
			words = append(words, regexp.MustCompile(`\w+`).FindAllString(m[1], -1)...)
		}
		series := selector.FindAllStringSubmatch(q.expr, -1)
		if len(series) == 0 {
			t.Errorf("%s asks for no series: %s", q.where, q.expr)
		}
		for _, s := range series {
			known, ok := labels[s[1]]
			if !ok {
				t.Errorf("%s asks for %s, which does not exist", q.where, s[1])
				continue
			}
			name := s[1]
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
			used[name] = true
			asked := slices.Clone(words)
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				asked = append(asked, m[1])
				for value := range strings.SplitSeq(m[2], "|") {
					if m[1] != "fleet" && m[1] != "upstream" && !slices.Contains(values[name], value) {
						t.Errorf("%s asks for %s with %s %q, which it never has", q.where, s[1], m[1], value)
					}
				}
			}
			for _, label := range asked {
				if !slices.Contains(known, label) {
					t.Errorf("%s uses the label %s of %s, which has only %q", q.where, label, s[1], known)
				}
			}
		}
	}
	names, _ := seriesInCode(t)
	var explained []string
	for _, r := range tables(readPages(t, []string{observability + "README.md"}), "series") {
		explained = append(explained, codeWords(r.cells[0])...)
	}
	compare(t, explained, names, "is not explained in the README of the example", "is explained in the README of the example and not in the code")
	for _, name := range names {
		if !used[name] {
			t.Errorf("neither the dashboard nor an alert uses %s", name)
		}
	}
}
