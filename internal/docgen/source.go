// SPDX-FileCopyrightText: The Caddy LLM authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// source is what a package says of its modules.
type source struct {
	modules []*object
	objects map[string]*object
}

// object is a struct that is read or written as JSON.
type object struct {
	name, doc string

	// id is the ID of the module that it is, "" where it is none, and syntax the
	// doc comment of its method UnmarshalCaddyfile
	id, syntax string

	exported bool
	at       token.Pos
	fields   []field
}

// field is a member of an object.
type field struct {
	name, doc string
	kind      ast.Expr
	optional  bool

	// namespace is of the modules that may stand here, "" for other fields
	namespace string
}

// readSource reads the Go files of a folder, without the tests.
func readSource(folder string) (*source, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	pkg, err := doc.NewFromFiles(fset, files, folder, doc.AllDecls|doc.PreserveAST)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	s := &source{objects: make(map[string]*object)}
	for _, t := range pkg.Types {
		o, err := readObject(t)
		if err != nil {
			return nil, err
		}
		if o.id != "" {
			s.modules = append(s.modules, o)
		}
		if o.id != "" || len(o.fields) > 0 {
			s.objects[o.name] = o
		}
	}
	slices.SortFunc(s.modules, func(a, b *object) int { return cmp.Compare(a.id, b.id) })
	return s, nil
}

// readObject reads a type. One that is no struct has no fields.
func readObject(t *doc.Type) (*object, error) {
	o := &object{name: t.Name, doc: t.Doc, exported: token.IsExported(t.Name), at: t.Decl.Pos()}
	for _, method := range t.Methods {
		switch method.Name {
		case "CaddyModule":
			o.id = moduleID(method.Decl)
		case "UnmarshalCaddyfile", "unmarshalCaddyfile":
			o.syntax = method.Doc
		}
	}
	for _, spec := range t.Decl.Specs {
		structure, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range structure.Fields.List {
			if err := o.addField(f); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// addField adds a field that has a name in JSON.
func (o *object) addField(f *ast.Field) error {
	var tag reflect.StructTag
	if f.Tag != nil {
		text, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return fmt.Errorf("%s: tag %s: %w", o.name, f.Tag.Value, err)
		}
		tag = reflect.StructTag(text)
	}
	name, options, _ := strings.Cut(tag.Get("json"), ",")
	if name == "" || name == "-" {
		for _, ident := range f.Names {
			if name == "" && o.exported && ident.IsExported() {
				return fmt.Errorf("%s.%s has no name in JSON", o.name, ident.Name)
			}
		}
		return nil
	}
	text := f.Doc.Text()
	if text == "" && o.exported {
		return fmt.Errorf("%s: field %s has no doc comment", o.name, name)
	}
	o.fields = append(o.fields, field{
		name: name, doc: text, kind: f.Type, optional: strings.Contains(options, "omit"),
		namespace: namespaceOf(tag.Get("caddy")),
	})
	return nil
}

// namespaceOf returns the namespace that a tag of Caddy's names.
func namespaceOf(tag string) string {
	for part := range strings.FieldsSeq(tag) {
		if namespace, ok := strings.CutPrefix(part, "namespace="); ok {
			return namespace
		}
	}
	return ""
}

// moduleID returns the ID in the module information that a method returns.
func moduleID(method *ast.FuncDecl) (id string) {
	ast.Inspect(method, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "ID" {
			if literal, ok := pair.Value.(*ast.BasicLit); ok {
				id, _ = strconv.Unquote(literal.Value)
			}
		}
		return true
	})
	return id
}
