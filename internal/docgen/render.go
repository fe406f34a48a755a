// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
)

const preface = `<!-- Written by go run ./internal/docgen from the doc comments. Do not edit. -->

# Reference

The modules, their fields in JSON and their syntax in a Caddyfile, and the answers of
the admin endpoint. A duration is a string such as "10m" or nanoseconds. What may be
left out has a default.
`

const answersPreface = `
## Answers of the admin endpoint

Their words are those of the [metrics](../README.md#metrics-and-state) and of the
placeholders. The events of the status page have the same.
`

// writer writes a reference. The objects that are written are not written again.
type writer struct {
	bytes.Buffer
	*source
	written map[string]bool
}

// render returns the reference of a source.
func render(s *source) ([]byte, error) {
	w := &writer{source: s, written: make(map[string]bool)}
	w.WriteString(preface)
	for _, module := range s.modules {
		if err := w.object(module, "## "+heading(module), 3); err != nil {
			return nil, err
		}
	}
	w.WriteString(answersPreface)
	for _, answer := range s.answers() {
		if err := w.object(answer, "### "+heading(answer), 3); err != nil {
			return nil, err
		}
	}
	return w.Bytes(), nil
}

// answers are the objects that are no configuration and part of no other answer,
// in the order of the source.
func (s *source) answers() []*object {
	var list []*object
	for _, o := range s.objects {
		if o.id == "" && !o.exported {
			list = append(list, o)
		}
	}
	parts := make(map[string]bool)
	for _, o := range list {
		for _, f := range o.fields {
			parts[s.refersTo(f.kind)] = true
		}
	}
	list = slices.DeleteFunc(list, func(o *object) bool { return parts[o.name] })
	slices.SortFunc(list, func(a, b *object) int { return cmp.Compare(a.at, b.at) })
	return list
}

// object writes an object and then the ones that its fields refer to, with
// headings of that level.
func (w *writer) object(o *object, title string, level int) error {
	if w.written[o.name] {
		return nil
	}
	w.written[o.name] = true
	fmt.Fprintf(w, "\n%s\n\n%s", title, o.doc)
	if o.syntax != "" {
		fmt.Fprintf(w, "\nCaddyfile:\n\n%s", syntaxOf(o.syntax))
	}
	if len(o.fields) > 0 {
		w.WriteString("\n")
	}
	parts := make(map[string]*object)
	for _, f := range o.fields {
		kind, err := w.kindOf(f)
		if err != nil {
			return fmt.Errorf("%s.%s: %w", o.name, f.name, err)
		}
		if f.optional && !o.exported {
			kind += ", may be missing"
		}
		fmt.Fprintf(w, "- **`%s`** (%s)%s\n", f.name, kind, indented(f.doc))
		if part, ok := w.objects[w.refersTo(f.kind)]; ok {
			parts[part.name] = part
		}
	}
	for _, part := range slices.SortedFunc(maps.Values(parts), func(a, b *object) int { return cmp.Compare(a.at, b.at) }) {
		if err := w.object(part, strings.Repeat("#", level)+" "+heading(part), level); err != nil {
			return err
		}
	}
	return nil
}

// syntaxOf leaves out of a doc comment of UnmarshalCaddyfile what comes before the
// syntax.
func syntaxOf(doc string) string {
	if _, syntax, ok := strings.Cut(doc, "Syntax:\n"); ok {
		return strings.TrimLeft(syntax, "\n")
	}
	return doc
}

// indented makes a doc comment the text of a list's item.
func indented(doc string) string {
	doc = strings.TrimSpace(doc)
	if doc == "" {
		return ""
	}
	return ":\n  " + strings.ReplaceAll(strings.ReplaceAll(doc, "\n", "\n  "), "\n  \n", "\n\n")
}

// heading is what an object is called.
func heading(o *object) string {
	switch {
	case o.id != "":
		return "`" + o.id + "`"
	case o.exported:
		return o.name
	}
	return strings.TrimSuffix(o.name, "Status")
}

// anchor is where the heading of an object is.
func anchor(o *object) string {
	return "#" + strings.ToLower(strings.NewReplacer("`", "", ".", "").Replace(heading(o)))
}

// refersTo returns the name of the object that a field of this type has, or has
// several of, "" for none.
func (s *source) refersTo(kind ast.Expr) string {
	switch t := kind.(type) {
	case *ast.StarExpr:
		return s.refersTo(t.X)
	case *ast.ArrayType:
		return s.refersTo(t.Elt)
	case *ast.MapType:
		return s.refersTo(t.Value)
	case *ast.Ident:
		if _, ok := s.objects[t.Name]; ok {
			return t.Name
		}
	}
	return ""
}

// kinds are what types of Go are in JSON.
var kinds = map[string]string{
	"string": "string", "bool": "boolean",
	"int": "integer", "int64": "integer", "uint64": "integer", "float64": "number",
	"caddy.Duration": "duration",
	"http.Header":    "object of lists of strings",
	"time.Time":      "time, as in RFC 3339",
}

// kindOf says what a field is in JSON.
func (w *writer) kindOf(f field) (string, error) {
	if f.namespace != "" {
		return "a module of `" + f.namespace + "`", nil
	}
	return w.kind(f.kind)
}

func (w *writer) kind(kind ast.Expr) (string, error) {
	switch t := kind.(type) {
	case *ast.StarExpr:
		return w.kind(t.X)
	case *ast.ArrayType:
		of, err := w.kind(t.Elt)
		return "list of " + of, err
	case *ast.MapType:
		of, err := w.kind(t.Value)
		return "object of " + of, err
	case *ast.SelectorExpr:
		if pkg, ok := t.X.(*ast.Ident); ok {
			if kind, ok := kinds[pkg.Name+"."+t.Sel.Name]; ok {
				return kind, nil
			}
		}
	case *ast.Ident:
		if o, ok := w.objects[t.Name]; ok {
			return "[" + heading(o) + "](" + anchor(o) + ")", nil
		}
		if kind, ok := kinds[t.Name]; ok {
			return kind, nil
		}
	}
	return "", fmt.Errorf("docgen does not know what %T is in JSON", kind)
}
