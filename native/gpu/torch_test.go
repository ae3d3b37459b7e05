// SPDX-License-Identifier: MIT

package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTorch has the calls work beside PyTorch in one process, where there is a GPU and a python3
// with PyTorch.
func TestTorch(t *testing.T) {
	_, err := Open(CUDA)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
	if err == nil {
		if out, err2 := run(t, "python3", "-c", "import torch; torch.ones(1, device='cuda')"); err2 != nil {
			err = errors.New("no python3 with a PyTorch that sees it: " + out)
		}
	}
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("MORI_REQUIRE"), ","), "gpu") {
			t.Fatalf("MORI_REQUIRE has gpu: %v", err)
		}
		t.Skip(err)
	}
	sources, err := filepath.Glob("*.c")
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(t.TempDir(), "gpu.so")
	args := slices.Concat([]string{"-std=gnu11", "-O2", "-shared", "-fPIC", "-o", lib}, sources, []string{"-ldl", "-lpthread"})
	if out, err := run(t, compiler(), args...); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	out, err := run(t, "python3", filepath.Join("testdata", "torch_check.py"), lib, filepath.Join("..", "..", "core", "device", "testdata", "fill.ptx"))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
}
