// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"sort"
	"strconv"
	"strings"
)

// pyTypes maps the Go types that may cross to the Python types they become.
var pyTypes = map[string]string{
	"int": "int", "int32": "int", "int64": "int", "uint32": "int", "uint64": "int", "uintptr": "int",
	"float64": "float", "bool": "bool", "string": "str",
}

// keywords are the Python keywords that are legal Go parameter names.
var keywords = map[string]bool{
	"and": true, "as": true, "assert": true, "async": true, "await": true, "class": true, "def": true,
	"del": true, "elif": true, "except": true, "finally": true, "from": true, "global": true, "in": true,
	"is": true, "lambda": true, "nonlocal": true, "not": true, "or": true, "pass": true, "raise": true,
	"try": true, "while": true, "with": true, "yield": true,
}

// A function is one exported function as Python sees it.
type function struct {
	name   string
	params []string
	result string
	doc    string
}

// A surface is what a Go package offers to Python.
type surface struct {
	functions []function
	version   string
}

// parseSurface reads the Go files of the folder dir. It joins the errors of all
// functions that cannot cross.
func parseSurface(fsys fs.FS, dir string) (*surface, error) {
	names, err := fs.Glob(fsys, dir+"/*.go")
	if err != nil {
		return nil, err
	}
	s := &surface{}
	var problems []error
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			problems = append(problems, s.add(decl))
		}
	}
	if s.version == "" {
		problems = append(problems, errors.New("no constant named version"))
	}
	sort.Slice(s.functions, func(i, j int) bool { return s.functions[i].name < s.functions[j].name })
	return s, errors.Join(problems...)
}

// add takes what one declaration offers.
func (s *surface) add(decl ast.Decl) error {
	switch decl := decl.(type) {
	case *ast.GenDecl:
		s.addVersion(decl)
	case *ast.FuncDecl:
		if decl.Recv != nil || !decl.Name.IsExported() || calledFromC(decl) {
			return nil
		}
		f, err := convert(decl)
		if err != nil {
			return fmt.Errorf("%s: %w", decl.Name.Name, err)
		}
		s.functions = append(s.functions, f)
	}
	return nil
}

func (s *surface) addVersion(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok || decl.Tok != token.CONST || v.Names[0].Name != "version" || len(v.Values) != 1 {
			continue
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			s.version, _ = strconv.Unquote(lit.Value)
		}
	}
}

// calledFromC reports whether cgo exports the function to C; gopy must not bind it as well.
func calledFromC(decl *ast.FuncDecl) bool {
	if decl.Doc == nil {
		return false
	}
	for _, c := range decl.Doc.List {
		if strings.HasPrefix(c.Text, "//export ") {
			return true
		}
	}
	return false
}

func convert(decl *ast.FuncDecl) (function, error) {
	f := function{name: decl.Name.Name, result: "None", doc: strings.TrimSpace(decl.Doc.Text())}
	if f.doc == "" {
		return f, errors.New("no doc comment")
	}
	for _, field := range decl.Type.Params.List {
		py, err := pyType(field.Type)
		if err != nil {
			return f, err
		}
		for _, name := range field.Names {
			if keywords[name.Name] {
				return f, fmt.Errorf("parameter %s is a Python keyword", name.Name)
			}
			f.params = append(f.params, name.Name+": "+py)
		}
	}
	if decl.Type.Results == nil {
		return f, nil
	}
	results := decl.Type.Results.List
	if len(results) > 2 || len(results) == 2 && !isError(results[1].Type) || isError(results[0].Type) {
		return f, errors.New("results must be T or (T, error)")
	}
	py, err := pyType(results[0].Type)
	f.result = py
	return f, err
}

func isError(expr ast.Expr) bool {
	id, ok := expr.(*ast.Ident)
	return ok && id.Name == "error"
}

func pyType(expr ast.Expr) (string, error) {
	if id, ok := expr.(*ast.Ident); ok {
		if py, ok := pyTypes[id.Name]; ok {
			return py, nil
		}
		return "", fmt.Errorf("type %s cannot cross", id.Name)
	}
	return "", fmt.Errorf("%T cannot cross", expr)
}
