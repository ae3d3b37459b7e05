// SPDX-License-Identifier: MIT

package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "mori/"
)

// A goFile is one Go source file of the repository.
type goFile struct {
	path string // relative to the root, with slashes
	dir  string
	ast  *ast.File
}

// imports returns the import paths of the file.
func (f goFile) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		paths = append(paths, path)
	}
	return paths
}

// goFiles parses the head of every Go file of the repository. Build products and
// virtual environments are left out, as are the folders that the go command ignores.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && rel != "." && (rel == "build" || rel == "dist" || strings.HasPrefix(d.Name(), ".") ||
			strings.HasPrefix(d.Name(), "_") || d.Name() == "testdata" || d.Name() == "vendor") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files = append(files, goFile{path: rel, dir: filepath.ToSlash(filepath.Dir(rel)), ast: parsed})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files below " + root)
	}
	return files
}
