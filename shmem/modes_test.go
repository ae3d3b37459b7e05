// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/memory"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
)

// A growing heap has what was asked for, in chunks; what it does not have yet is no symmetric
// memory.
func TestHeapGrowsInChunks(t *testing.T) {
	const chunk = 64 << 10
	run(t, 2, Config{Mode: VMMHeap, HeapSize: 10*chunk + 4096, ChunkSize: chunk}, func(w *World) error {
		present := func(chunks, used uint64) {
			t.Helper()
			if h := w.Describe().Heap; h.Present != min(chunks*chunk, 10*chunk+4096) || h.Used != used {
				t.Errorf("%d bytes present and %d used, want %d chunks and %d: %+v", h.Present, h.Used, chunks, used, h)
			}
		}
		present(1, 0)
		beyond := w.heap.Main().Base + chunk
		if _, _, err := w.heap.Locate(beyond, 1); !errors.Is(err, ErrNotSym) || w.Ptr(beyond, 1-w.pes.Me) != 0 {
			t.Errorf("memory that is not there yet is found: %v", err)
		}
		a, err := w.Malloc(chunk)
		if err != nil {
			return err
		}
		present(2, chunk)
		if _, _, err := w.heap.Locate(beyond, 1); err != nil {
			t.Error(err)
		}
		memory.Bytes(w.Ptr(a, 1-w.pes.Me), chunk)[chunk-1] = 1
		b, err := w.Malloc(7*chunk + 1)
		if err != nil {
			return err
		}
		present(9, 8*chunk+arena.Grain)
		if _, err := w.Malloc(2*chunk + 4096); !errors.Is(err, ErrNoMemory) {
			t.Errorf("more than the heap may grow to: %v", err)
		}
		present(9, 8*chunk+arena.Grain)
		c, err := w.Malloc(chunk)
		if err != nil {
			return err
		}
		if err := errors.Join(w.Free(b), w.Free(c), w.Free(a)); err != nil {
			return err
		}
		d, err := w.Malloc(10 * chunk)
		if err != nil {
			return err
		}
		present(11, 10*chunk)
		memory.Bytes(w.Ptr(d, 1-w.pes.Me), 10*chunk)[10*chunk-1] = 1
		w.rendezvous(t)
		return w.Free(d)
	})
}

// Isolated blocks lie apart, and a freed one is gone.
func TestIsolatedBlocksAreMappingsOfTheirOwn(t *testing.T) {
	run(t, 2, Config{Mode: Isolation, HeapSize: 1 << 20}, func(w *World) error {
		a, err := w.Malloc(100)
		if err != nil {
			return err
		}
		b, err := w.Malloc(100)
		if err != nil {
			return err
		}
		if w.Ptr(a+99, 1-w.pes.Me) == 0 || w.Ptr(a+heap.PageSize, 1-w.pes.Me) != 0 && a+heap.PageSize != b {
			t.Error("a block is more or less than its page")
		}
		w.rendezvous(t)
		if err := w.Free(a); err != nil {
			return err
		}
		if memory.Mapped(a, 1) || w.Ptr(a, w.pes.Me) != 0 || w.Ptr(b, 1-w.pes.Me) == 0 {
			t.Error("what was freed is there, or what was not is gone")
		}
		return w.Free(b)
	})
}

func TestDescribeIsJSON(t *testing.T) {
	run(t, 2, Config{NodeID: "rack7"}, func(w *World) error {
		if _, err := w.Malloc(1000); err != nil {
			return err
		}
		text, err := json.Marshal(w.Describe())
		if err != nil {
			return err
		}
		for _, want := range []string{`"npes":2`, `"node":"rack7"`, `"mode":"static_heap"`, `"used":1024`, `"allocations":1`, `"path":"self"`, `"path":"mapped"`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s is not in %s", want, text)
			}
		}
		return nil
	})
}

// A block that one PE cannot map is nobody's, and leaves nothing.
func TestIsolatedBlockThatCannotBeMapped(t *testing.T) {
	run(t, 3, Config{Mode: Isolation, HeapSize: 1 << 20}, func(w *World) error {
		a, err := w.Malloc(100)
		if err != nil {
			return err
		}
		if w.pes.Me == 1 {
			_ = w.share.Close() // and so the others do not get what it has
		}
		w.rendezvous(t)
		b, err := w.Malloc(100)
		switch {
		case b != 0 || err == nil:
			t.Errorf("PE %d has %#x, %v", w.pes.Me, b, err)
		case w.pes.Me == 1 && (!errors.Is(err, ErrElsewhere) || !strings.Contains(err.Error(), "PE 0") || !strings.Contains(err.Error(), "PE 2")):
			t.Errorf("PE 1: %v", err)
		case w.pes.Me != 1 && !strings.Contains(err.Error(), "map the memory of PE 1"):
			t.Errorf("PE %d: %v", w.pes.Me, err)
		}
		if h := w.Describe().Heap; h.Allocations != 1 || h.Used != heap.PageSize {
			t.Errorf("%+v", h)
		}
		return w.Free(a)
	})
}

// Who is interrupted in a collective call gives up, and the others hear that it has.
func TestInterruptEndsMalloc(t *testing.T) {
	stop := errors.New("stop")
	done := make(chan error, 2)
	for i, g := range bootstrap.Local(2) {
		cfg := Config{HeapSize: 1 << 20, Timeout: 30 * time.Second}
		if i == 0 {
			cfg.Interrupt = func() error { return stop }
		}
		go func() {
			w, err := Init(context.Background(), g, cfg)
			if err != nil {
				done <- err
				return
			}
			if i == 1 {
				<-w.pes.Broken()
			} else if _, err = w.Malloc(8); errors.Is(err, stop) {
				err = nil
			}
			_ = w.Finalize(context.Background()) // returns the fault again
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkMalloc is an allocation and its end, which are two exchanges of the group: here those of
// one process.
func BenchmarkMalloc(b *testing.B) {
	for _, cfg := range modes {
		b.Run(cfg.Mode.String(), func(b *testing.B) {
			run(b, 2, cfg, func(w *World) error {
				for i := 0; i < b.N; i++ {
					a, err := w.Malloc(4096)
					if err = errors.Join(err, w.Free(a)); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkInit is a World that begins and ends, in one process.
func BenchmarkInit(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				run(b, n, Config{}, func(*World) error { return nil })
			}
		})
	}
}
