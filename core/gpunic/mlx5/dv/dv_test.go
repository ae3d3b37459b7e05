// SPDX-License-Identifier: MIT

package dv

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"mori/core/fabric/fabrictest"
	"mori/core/gpunic/mlx5"
)

func TestMain(m *testing.M) { os.Exit(fabrictest.Main(m)) }

func TestANICThatThereIsNot(t *testing.T) {
	n, err := Open("mlx5_of_nobody")
	if n != nil || !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%v, %v", n, err)
	}
}

// TestRoutes: each command that core/gpunic/mlx5 has goes some way, and none that it has not.
func TestRoutes(t *testing.T) {
	for op := range uint16(0xfff) {
		_, routed := routes[op]
		known := !strings.HasPrefix(mlx5.OpName(op), "command")
		if own := op == mlx5.OpAllocUAR || op == mlx5.OpDeallocUAR; own { // libmlx5 has calls for these
			known = false
		}
		if routed != known {
			t.Errorf("%s: routed %v", mlx5.OpName(op), routed)
		}
	}
}

// TestCommandsAreChecked before anything is done with them.
func TestCommandsAreChecked(t *testing.T) {
	n := &NIC{name: "none"}
	out := make([]byte, 16)
	for name, c := range map[string]struct {
		in, out []byte
		want    error
	}{
		"of no known kind":  {mlx5.Encode(&mlx5.Simple{Op: 0xabc}), out, errors.ErrUnsupported},
		"empty":             {nil, out, errors.ErrUnsupported},
		"without an answer": {mlx5.Encode(&mlx5.Simple{Op: mlx5.OpAllocPD}), nil, mlx5.ErrArgument},
		"about no object":   {mlx5.Encode(&mlx5.Simple{Op: mlx5.OpDestroyQP, ID: 5}), out, mlx5.ErrArgument},
		"to move no object": {mlx5.Encode(&mlx5.ModifyQP{Op: mlx5.OpRst2Init, QPN: 5}), out, mlx5.ErrArgument},
		"to ask about none": {mlx5.Encode(&mlx5.Simple{Op: mlx5.OpQueryQP, ID: 5}), out, mlx5.ErrArgument},
	} {
		if err := n.Do(c.in, c.out); !errors.Is(err, c.want) {
			t.Errorf("a command %s: %v, want %v", name, err, c.want)
		}
	}
	if err := n.FreeUmem(1); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("memory that there is not: %v", err)
	}
	if err := n.FreeUAR(1); !errors.Is(err, mlx5.ErrArgument) {
		t.Errorf("doorbells that there are not: %v", err)
	}
}
