// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
)

// BenchmarkNetwork is what PEs that do not map each other pay, within one process.
func BenchmarkNetwork(b *testing.B) {
	for _, over := range []struct {
		name string
		cfg  Config
	}{{"shm", Config{DisableP2P: true}}, {"tcp", Config{NodeID: "node %d"}}} {
		for _, size := range []uint64{8, 64 << 10, 1 << 20} {
			overNetwork(b, fmt.Sprintf("%s/put+quiet/%d", over.name, size), over.cfg, size, func(w *World, blk *heap.Block, src uint64) error {
				return errors.Join(w.net.PutNow(1, blk.Regions(), arena.Reserved, src, size), w.order.Drain())
			})
			overNetwork(b, fmt.Sprintf("%s/get/%d", over.name, size), over.cfg, size, func(w *World, blk *heap.Block, src uint64) error {
				return w.net.GetNow(1, blk.Regions(), arena.Reserved, src, size)
			})
		}
		overNetwork(b, over.name+"/fetch_add", over.cfg, 8, func(w *World, blk *heap.Block, _ uint64) error {
			_, err := w.net.Atomic(1, blk.Regions(), arena.Reserved, fabric.AtomicSum, 8, 1, 0)
			return err
		})
		overNetwork(b, over.name+"/update", over.cfg, 8, func(w *World, blk *heap.Block, _ uint64) error {
			return w.net.Update(1, blk.Regions(), arena.Reserved, fabric.AtomicSum, 8, 1)
		})
	}
}

// overNetwork measures f on PE 0 of two.
func overNetwork(b *testing.B, name string, cfg Config, size uint64, f func(w *World, blk *heap.Block, src uint64) error) {
	b.Run(name, func(b *testing.B) {
		src := make([]byte, size)
		defer runtime.KeepAlive(src)
		run(b, 2, cfg, func(w *World) error {
			if w.pes.Me == 0 {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := f(w, w.heap.Main(), memory.AddrOf(src)); err != nil {
						return err
					}
				}
			}
			return w.order.Drain()
		})
	})
}

// BenchmarkPutSignalBetweenHosts is what two PEs of two hosts pay for a put of 8 bytes with a
// signal and the signal that answers, and for a barrier, one way or both; over TCP, and over NICs,
// which are emulated where there are none.
func BenchmarkPutSignalBetweenHosts(b *testing.B) {
	for _, over := range []string{"tcp", "verbs"} {
		betweenHosts(b, over+"/put_signal", over, func(w *World, at, round uint64) error {
			if w.pes.Me == 1 {
				if _, err := w.SignalWaitUntil(at+64, CmpEQ, round); err != nil {
					return err
				}
				return w.SignalSet(at+128, round, 0)
			}
			if err := w.PutSignal(at, at+256, 8, at+64, round, SignalSet, 1); err != nil {
				return err
			}
			_, err := w.SignalWaitUntil(at+128, CmpEQ, round)
			return err
		})
		betweenHosts(b, over+"/barrier", over, func(w *World, _, _ uint64) error { return w.BarrierAll() })
	}
}

// betweenHosts measures rounds of f, which both PEs do.
func betweenHosts(b *testing.B, name, over string, f func(w *World, at, round uint64) error) {
	b.Run(name, func(b *testing.B) {
		if over == "verbs" {
			byNICs(b)
		} else {
			environment(b, map[string]string{"FABRIC_PROVIDER": over})
		}
		run(b, 2, far2, func(w *World) error {
			at, err := w.Malloc(4096)
			if err != nil {
				return err
			}
			for round := uint64(1); round <= 20; round++ {
				if err := f(w, at, round); err != nil {
					return err
				}
			}
			if w.pes.Me == 0 {
				b.ResetTimer()
			}
			for round := range uint64(b.N) {
				if err := f(w, at, 21+round); err != nil {
					return err
				}
			}
			if w.pes.Me == 0 {
				b.StopTimer()
			}
			return w.Free(at)
		})
	})
}
