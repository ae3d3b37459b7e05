// SPDX-License-Identifier: MIT

package repo

import (
	"bytes"
	"go/format"
	"os"
	"path/filepath"
	"testing"
)

func TestFormat(t *testing.T) {
	for _, f := range goFiles(t) {
		src, err := os.ReadFile(filepath.Join(root, f.path))
		if err != nil {
			t.Fatal(err)
		}
		formatted, err := format.Source(src)
		if err != nil {
			t.Errorf("%s: %v", f.path, err)
		} else if !bytes.Equal(src, formatted) {
			t.Errorf("%s is not formatted: run gofmt -w %s", f.path, f.path)
		}
	}
}
