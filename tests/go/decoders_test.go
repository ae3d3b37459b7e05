// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// decoderCalls are what code calls that takes foreign bytes apart, as package.function.
var decoderCalls = []string{"json.Unmarshal", "json.NewDecoder", "decode.Unmarshal", "decode.NewReader", "gob.NewDecoder", "binary.Read", "io.ReadFull", "io.ReadAll",
	"BigEndian.Uint16", "BigEndian.Uint32", "BigEndian.Uint64"}

// bannedDecoders allocate the lengths that a message claims.
var bannedDecoders = []string{"msgpack.Unmarshal", "msgpack.NewDecoder"}

// TestDecodersAreFuzzed: a package that takes foreign bytes apart has a fuzz target, or is in trusted with the reason.
func TestDecodersAreFuzzed(t *testing.T) {
	trusted := map[string]string{
		"core/fabric/fabrictest/pingpong": "a benchmark's two processes",
		"core/memory":                     "reads 20 bytes into an array",
		"pybind":                          "options of this process's own Python",
		"core/provider/ofi":               "addresses of libfabric and keys of fixed length",
		"core/interchange":                "what ranks of one program tell each other, after the proof of the bootstrap",
		"core/gpunic/mlx5/dv":             "answers of this host's device",
	}
	decodes, fuzzed := map[string][]string{}, map[string]bool{}
	for _, f := range goFiles(t) {
		if strings.HasPrefix(f.dir, "tests/") || strings.HasPrefix(f.dir, "tools") || strings.HasSuffix(f.dir, "test") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(f.path, "_test.go")
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				fuzzed[f.dir] = fuzzed[f.dir] || test && strings.HasPrefix(n.Name.Name, "Fuzz")
			case *ast.CallExpr:
				name := calledName(n)
				if slices.Contains(bannedDecoders, name) && !test {
					t.Errorf("%s calls %s: package core/decode bounds what it allocates", f.path, name)
				}
				if slices.Contains(decoderCalls, name) && !test {
					decodes[f.dir] = append(decodes[f.dir], name)
				}
			}
			return true
		})
	}
	for dir, names := range decodes {
		if !fuzzed[dir] && trusted[dir] == "" {
			t.Errorf("%s calls %v and has no fuzz target: write one that counts with decodetest.Bounded, or say in trusted why its bytes are ours", dir, slices.Compact(slices.Sorted(slices.Values(names))))
		}
	}
	for dir := range trusted {
		if len(decodes[dir]) == 0 || fuzzed[dir] {
			t.Errorf("%s is trusted, and decodes nothing or is fuzzed", dir)
		}
	}
}

// calledName is the last two names of what is called: of binary.BigEndian.Uint16, BigEndian.Uint16.
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
