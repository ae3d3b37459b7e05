// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
)

// BenchmarkNetwork is what PEs that do not map each other pay, within one process.
func BenchmarkNetwork(b *testing.B) {
	for _, over := range []struct {
		name string
		cfg  Config
	}{{"shm", Config{DisableP2P: true}}, {"tcp", Config{NodeID: "node %d"}}} {
		for _, size := range []uint64{8, 64 << 10, 1 << 20} {
			overNetwork(b, fmt.Sprintf("%s/put+quiet/%d", over.name, size), over.cfg, size, func(w *World, blk *block, src uint64) error {
				return errors.Join(w.net.putNow(1, blk, reserved, src, size), w.drain())
			})
			overNetwork(b, fmt.Sprintf("%s/get/%d", over.name, size), over.cfg, size, func(w *World, blk *block, src uint64) error {
				return w.net.getNow(1, blk, reserved, src, size)
			})
		}
		overNetwork(b, over.name+"/fetch_add", over.cfg, 8, func(w *World, blk *block, _ uint64) error {
			_, err := w.net.atomic(1, blk, reserved, fabric.AtomicSum, 8, 1, 0)
			return err
		})
		overNetwork(b, over.name+"/update", over.cfg, 8, func(w *World, blk *block, _ uint64) error {
			return w.net.update(1, blk, reserved, fabric.AtomicSum, 8, 1)
		})
	}
}

// overNetwork measures f on PE 0 of two.
func overNetwork(b *testing.B, name string, cfg Config, size uint64, f func(w *World, blk *block, src uint64) error) {
	b.Run(name, func(b *testing.B) {
		src := make([]byte, size)
		defer runtime.KeepAlive(src)
		run(b, 2, cfg, func(w *World) error {
			if w.me == 0 {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(w, w.heap, memory.AddrOf(src)); err != nil {
						return err
					}
				}
			}
			return w.drain()
		})
	})
}
