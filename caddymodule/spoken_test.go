// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package caddymodule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// spoken are the words by which users know the code, as they stand in it.
type spoken struct {
	// options are the paths of what the parsers of the Caddyfile accept, and
	// syntaxes the doc comments of these parsers
	options  []string
	syntaxes map[string]string

	placeholders []string
	directives   []string

	// paths are how endpoints end, by the constants named like adminDrainPath and
	// the keys of adminActions, and messages what is logged above the level debug
	paths, messages []string

	// comments are the doc comments of types
	comments map[string]string

	parents map[string]string
}

// readCode reads the files of this package, without the tests.
func readCode(t *testing.T) *spoken {
	t.Helper()
	s := &spoken{syntaxes: map[string]string{}, comments: map[string]string{}, parents: map[string]string{}}
	s.addParents(reflect.TypeFor[LoadAwareSelection](), "")
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			s.addDecl(decl)
		}
	}
	for _, list := range []*[]string{&s.options, &s.placeholders, &s.directives, &s.paths, &s.messages} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return s
}

// addParents notes under which option's name the options of a struct stand.
func (s *spoken) addParents(of reflect.Type, path string) {
	for field := range of.Fields() {
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if kind.Kind() == reflect.Struct && tag != "" {
			s.parents[kind.Name()] = path + tag + " "
			s.addParents(kind, path+tag+" ")
		}
	}
}

func (s *spoken) addDecl(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		receiver := receiverOf(d)
		if strings.EqualFold(d.Name.Name, "UnmarshalCaddyfile") {
			s.syntaxes[receiver] = d.Doc.Text()
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if choice, ok := n.(*ast.SwitchStmt); ok && receiver != "" && isToken(choice.Tag) {
				s.addOptions(choice, s.parents[receiver])
			}
			s.addWord(n)
			return true
		})
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				s.comments[spec.Name.Name] = d.Doc.Text()
			case *ast.ValueSpec:
				s.addPaths(spec)
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			s.addWord(n)
			return true
		})
	}
}

// receiverOf returns the type that a function is a method of, "" for none.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	kind := d.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	return kind.(*ast.Ident).Name
}

// isToken reports that an expression is the current token of a Caddyfile.
func isToken(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) > 0 {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && method.Sel.Name == "Val"
}

// addOptions adds the cases of a switch over a Caddyfile's token.
func (s *spoken) addOptions(choice *ast.SwitchStmt, path string) {
	for _, clause := range choice.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			if name, ok := literal(e); ok {
				s.options = append(s.options, path+name)
			}
		}
	}
}

// addPaths adds the constants of the admin endpoint, and its actions.
func (s *spoken) addPaths(spec *ast.ValueSpec) {
	for i, value := range spec.Values {
		name := spec.Names[i].Name
		if path, ok := literal(value); ok && strings.HasPrefix(name, "admin") && strings.HasSuffix(name, "Path") {
			s.paths = append(s.paths, path)
		}
		if actions, ok := value.(*ast.CompositeLit); ok && name == "adminActions" {
			for _, element := range actions.Elts {
				if action, ok := literal(element.(*ast.KeyValueExpr).Key); ok {
					s.paths = append(s.paths, "/"+action)
				}
			}
		}
	}
}

// levels are the methods of a logger above debug.
var levels = []string{"Info", "Warn", "Error"}

// addWord adds what a node says to users.
func (s *spoken) addWord(n ast.Node) {
	if l, ok := n.(*ast.BasicLit); ok {
		if word, ok := literal(l); ok && strings.HasPrefix(word, "http.llm_loadaware.") {
			s.placeholders = append(s.placeholders, word)
		}
	}
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	method := ""
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		method = f.Sel.Name
	case *ast.Ident:
		method = f.Name
	}
	switch first, said := literal(call.Args[0]); {
	case said && (method == "RegisterHandlerDirective" || method == "RegisterDirective"):
		s.directives = append(s.directives, first)
	case said && slices.Contains(levels, method):
		s.messages = append(s.messages, first)
	case method == "log" && len(call.Args) > 1:
		if message, ok := literal(call.Args[1]); ok {
			s.messages = append(s.messages, message)
		}
	case method == "logPanic" && len(call.Args) > 1:
		if what, ok := literal(call.Args[1]); ok {
			s.messages = append(s.messages, what+" panicked")
		}
	}
}

// literal returns the value of a string that is written out.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(e.Value)
		return value, err == nil
	case *ast.BinaryExpr:
		left, ok := literal(e.X)
		right, also := literal(e.Y)
		return left + right, ok && also && e.Op == token.ADD
	}
	return "", false
}
