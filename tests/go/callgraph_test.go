// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A goFunc is a function or method of a package, and what its body names.
type goFunc struct {
	name            string // of a method: type.name
	test            bool   // it is in a test file
	uses            names
	counts          []names  // what each argument of decodetest.Bounded names
	decodes, banned []string // calls of decoderCalls and bannedDecoders outside tests
}

// names are identifiers of functions and of methods that some code names.
type names struct{ funcs, methods map[string]bool }

// A goPackage is the functions of a folder.
type goPackage struct {
	files   []goFile
	fields  map[string]bool // of any struct
	funcs   []*goFunc
	byName  map[string][]*goFunc
	methods map[string][]*goFunc // of any type, as interfaces hide it
}

// decoderPackages parses the packages that may decode foreign bytes, by folder.
func decoderPackages(t *testing.T) map[string]*goPackage {
	t.Helper()
	all := map[string]*goPackage{}
	for _, f := range goFiles(t) {
		if strings.HasPrefix(f.dir, "tests/") || strings.HasPrefix(f.dir, "tools") || strings.HasSuffix(f.dir, "test") || strings.Contains(f.dir, "test/internal/") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		p := all[f.dir]
		if p == nil {
			p = &goPackage{fields: map[string]bool{}, byName: map[string][]*goFunc{}, methods: map[string][]*goFunc{}}
			all[f.dir] = p
		}
		f.ast = parsed
		p.files = append(p.files, f)
	}
	for _, p := range all {
		p.addFields()
		p.addFuncs()
	}
	return all
}

func (p *goPackage) addFields() {
	for _, file := range p.files {
		ast.Inspect(file.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						p.fields[name.Name] = true
					}
				}
			}
			return true
		})
	}
}

func (p *goPackage) addFuncs() {
	for _, file := range p.files {
		imports, test := importNames(file.ast), strings.HasSuffix(file.path, "_test.go")
		for _, d := range file.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					p.add(d, imports, test)
				}
			case *ast.GenDecl:
				p.addValues(d, imports, test)
			}
		}
	}
}

func (p *goPackage) add(d *ast.FuncDecl, imports map[string]bool, test bool) {
	f := p.newFunc(d.Name.Name, d, imports, test)
	if d.Recv != nil {
		f.name = receiver(d.Recv.List[0].Type) + "." + f.name
		p.methods[d.Name.Name] = append(p.methods[d.Name.Name], f)
	} else {
		p.byName[f.name] = append(p.byName[f.name], f)
	}
}

// addValues adds the variables of d, each as if it were a function that does what its value says.
func (p *goPackage) addValues(d *ast.GenDecl, imports map[string]bool, test bool) {
	for _, spec := range d.Specs {
		if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) > 0 {
			f := p.newFunc(v.Names[0].Name, v, imports, test)
			for _, name := range v.Names {
				p.byName[name.Name] = append(p.byName[name.Name], f)
			}
		}
	}
}

func (p *goPackage) newFunc(name string, body ast.Node, imports map[string]bool, test bool) *goFunc {
	f := &goFunc{name: name, test: test, uses: p.namesIn(body, imports)}
	p.funcs = append(p.funcs, f)
	ast.Inspect(body, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		called := calledName(c)
		if called == "decodetest.Bounded" {
			f.counts = append(f.counts, p.namesIn(c.Args[len(c.Args)-1], imports))
		}
		if !test && slices.Contains(decoderCalls, called) && !slices.Contains(f.decodes, called) {
			f.decodes = append(f.decodes, called)
		}
		if !test && slices.Contains(bannedDecoders, called) {
			f.banned = append(f.banned, called)
		}
		return true
	})
	return f
}

// counted returns the package's functions that run inside decodetest.Bounded in a fuzz target, and
// the fuzz targets that do not call it.
func (p *goPackage) counted() (reached map[*goFunc]bool, countless []string) {
	reached = map[*goFunc]bool{}
	for _, target := range p.funcs {
		if !target.test || !strings.HasPrefix(target.name, "Fuzz") {
			continue
		}
		counts := false
		for f := range p.closure([]*goFunc{target}) {
			for _, names := range f.counts {
				maps.Copy(reached, p.closure(p.named(names)))
				counts = true
			}
		}
		if !counts {
			countless = append(countless, target.name)
		}
	}
	return reached, countless
}

// closure returns the functions, and all that they name, directly or through others of the
// package.
func (p *goPackage) closure(from []*goFunc) map[*goFunc]bool {
	reached := map[*goFunc]bool{}
	for len(from) > 0 {
		f := from[len(from)-1]
		from = from[:len(from)-1]
		if !reached[f] {
			reached[f] = true
			from = append(from, p.named(f.uses)...)
		}
	}
	return reached
}

func (p *goPackage) named(n names) (all []*goFunc) {
	for name := range n.funcs {
		all = append(all, p.byName[name]...)
	}
	for name := range n.methods {
		all = append(all, p.methods[name]...)
	}
	return all
}

// namesIn returns the functions and methods that n may call or pass on. What is selected from an
// import is another package's. json.Unmarshal and json.NewDecoder call UnmarshalJSON.
func (p *goPackage) namesIn(n ast.Node, imports map[string]bool) names {
	found, local := names{map[string]bool{}, map[string]bool{}}, localNames(n)
	var visit func(n ast.Node) bool
	selected := func(s *ast.SelectorExpr, called bool) {
		x, ok := s.X.(*ast.Ident)
		switch {
		case !ok || !imports[x.Name] || local[x.Name]:
			if called || !p.fields[s.Sel.Name] {
				found.methods[s.Sel.Name] = true
			}
			ast.Inspect(s.X, visit)
		case x.Name == "json":
			found.methods["UnmarshalJSON"], found.methods["UnmarshalText"] = true, true
		}
	}
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			if !local[n.Name] {
				found.funcs[n.Name] = true
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				selected(s, true)
				for _, arg := range n.Args {
					ast.Inspect(arg, visit)
				}
				return false
			}
		case *ast.SelectorExpr:
			selected(n, false)
			return false
		case *ast.KeyValueExpr: // the key is a field, or a constant
			ast.Inspect(n.Value, visit)
			return false
		}
		return true
	}
	ast.Inspect(n, visit)
	return found
}

// localNames returns the names of parameters and variables that n declares.
func localNames(n ast.Node) map[string]bool {
	all := map[string]bool{}
	declare := func(e ast.Expr) {
		if x, ok := e.(*ast.Ident); ok {
			all[x.Name] = true
		}
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, name := range n.Names {
				all[name.Name] = true
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					declare(e)
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				declare(n.Key)
				declare(n.Value)
			}
		case *ast.DeclStmt:
			if d, ok := n.Decl.(*ast.GenDecl); ok {
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							all[name.Name] = true
						}
					}
				}
			}
		}
		return true
	})
	return all
}

// importNames returns the names by which a file refers to what it imports.
func importNames(f *ast.File) map[string]bool {
	all := map[string]bool{}
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[name] = true
	}
	return all
}

// calledName is the last two names of what is called: of binary.BigEndian.Uint16,
// BigEndian.Uint16.
func calledName(c *ast.CallExpr) string {
	sel, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch x := sel.X.(type) {
	case *ast.Ident:
		return x.Name + "." + sel.Sel.Name
	case *ast.SelectorExpr:
		return x.Sel.Name + "." + sel.Sel.Name
	}
	return ""
}
