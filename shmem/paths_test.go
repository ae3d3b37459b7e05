// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// paths are the ways to the memory of another PE.
var paths = map[string]Config{
	"static heap":  {},
	"growing heap": {Mode: VMMHeap, ChunkSize: 1 << 20},
	"isolated":     {Mode: Isolation},
	"network":      {DisableP2P: true},
	"other host":   {NodeID: "%d"},

	"other host by NICs":               {NodeID: "%d"},
	"other host by NICs, that grows":   {NodeID: "%d", Mode: VMMHeap, ChunkSize: 1 << 20},
	"other host by NICs, in isolation": {NodeID: "%d", Mode: Isolation},

	"static heap on GPUs":  {},
	"growing heap on GPUs": {Mode: VMMHeap, HeapSize: 16 << 20, ChunkSize: 2 << 20},
	"isolated on GPUs":     {Mode: Isolation},
}

// gpuPaths are those with the heap on GPUs.
var gpuPaths = map[string]bool{"static heap on GPUs": true, "growing heap on GPUs": true, "isolated on GPUs": true}

// onEveryPath calls f on each of n PEs that have the same size bytes of symmetric memory at mem, on
// every path.
func onEveryPath(t *testing.T, n int, size uint64, f func(t *testing.T, w *World, mem uint64) error) {
	for name, cfg := range paths {
		t.Run(name, func(t *testing.T) {
			if gpuPaths[name] {
				cfg = onGPU(t, cfg)
			}
			if strings.Contains(name, "NICs") {
				byNICs(t)
			}
			run(t, n, cfg, func(w *World) error {
				mem, err := w.Malloc(size)
				if err != nil {
					return err
				}
				return errors.Join(f(t, w, mem), w.BarrierAll(), w.Free(mem))
			})
		})
	}
}

// onHeaps calls f on each of n PEs, with heaps that are mapped and that are not.
func onHeaps(t *testing.T, n int, f func(w *World) error) {
	for _, name := range []string{"static heap", "network"} {
		t.Run(name, func(t *testing.T) { run(t, n, paths[name], f) })
	}
}

// A refusal is a call with a bad argument.
type refusal struct {
	what string
	want error
	call func() error
}

// allRefused makes calls that must fail, and returns an error for each that does not.
func allRefused(list []refusal) error {
	var errs []error
	for _, r := range list {
		if err := r.call(); !errors.Is(err, r.want) {
			errs = append(errs, fmt.Errorf("%s: got %v, want %w", r.what, err, r.want))
		}
	}
	return errors.Join(errs...)
}

// filled is n bytes that differ by place and seed.
func filled(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*31 + i>>8 + seed*101)
	}
	return b
}
