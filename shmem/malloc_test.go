// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/memory"
	"mori/shmem/internal/arena"
)

// modes are heaps of 4 MiB made in every way.
var modes = []Config{
	{Mode: StaticHeap, HeapSize: 4 << 20},
	{Mode: VMMHeap, HeapSize: 4 << 20, ChunkSize: 64 << 10},
	{Mode: Isolation, HeapSize: 4 << 20},
}

// inModes runs f on n PEs, once for each mode of the heap.
func inModes(t *testing.T, n int, f func(t *testing.T, w *World) error) {
	for _, cfg := range modes {
		t.Run(cfg.Mode.String(), func(t *testing.T) { run(t, n, cfg, func(w *World) error { return f(t, w) }) })
	}
}

// rendezvous is a barrier of the tests, which does not depend on what is tested.
func (w *World) rendezvous(t *testing.T) {
	defer w.heap.Hold()()
	if _, err := w.pes.Gather(context.Background(), nil); err != nil {
		t.Errorf("PE %d: %v", w.pes.Me, err)
	}
}

func TestMallocIsSymmetric(t *testing.T) {
	inModes(t, 4, func(t *testing.T, w *World) error {
		var all []uint64
		for i, size := range []uint64{1, 8, 256, 257, 5000, 1 << 20} {
			a, err := w.Malloc(size)
			if err != nil {
				return err
			}
			if a%arena.Grain != 0 {
				t.Errorf("%d bytes at %#x", size, a)
			}
			for _, b := range memory.Bytes(a, size) {
				if b != 0 {
					t.Fatalf("%d bytes are not zeros", size)
				}
			}
			w.rendezvous(t)
			right := (w.pes.Me + 1) % w.pes.N
			there := w.Ptr(a, right)
			memory.Bytes(there, size)[size-1] = byte(16*i + w.pes.Me + 1)
			w.rendezvous(t)
			left := (w.pes.Me + w.pes.N - 1) % w.pes.N
			if got := memory.Bytes(a, size)[size-1]; got != byte(16*i+left+1) {
				t.Errorf("PE %d, %d bytes: the last is %d", w.pes.Me, size, got)
			}
			all = append(all, a)
		}
		for _, a := range all {
			if err := w.Free(a); err != nil {
				return err
			}
		}
		if d := w.Describe(); d.Heap.Used != 0 || d.Heap.Allocations != 0 {
			t.Errorf("all is freed, and yet %+v", d.Heap)
		}
		return nil
	})
}

func TestSizeZeroAndAddressZeroAreNothing(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		a, err := w.Malloc(0)
		if a != 0 || err != nil {
			t.Errorf("Malloc(0) = %#x, %v", a, err)
		}
		if a, err = w.Calloc(0, 8); a != 0 || err != nil {
			t.Errorf("Calloc(0, 8) = %#x, %v", a, err)
		}
		if w.pes.Me == 0 {
			return w.Free(0) // not collective
		}
		return nil
	})
}

func TestAlignment(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		for align := uint64(1); align <= 1<<20; align *= 2 {
			a, err := w.MallocAlign(align, 100)
			if err != nil {
				return err
			}
			if a%align != 0 || a%arena.Grain != 0 {
				t.Errorf("aligned to %d: %#x", align, a)
			}
			memory.Bytes(w.Ptr(a, 1-w.pes.Me), 100)[99] = 1
			w.rendezvous(t)
			if err := w.Free(a); err != nil {
				return err
			}
		}
		for _, align := range []uint64{0, 3, 255, 1<<20 + 1} {
			if a, err := w.MallocAlign(align, 100); a != 0 || !errors.Is(err, ErrInvalid) {
				t.Errorf("aligned to %d: %#x, %v", align, a, err)
			}
		}
		return nil
	})
}

func TestHeapIsFull(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		for _, size := range []uint64{4<<20 + 1, 1 << 40, ^uint64(0)} {
			if a, err := w.Malloc(size); a != 0 || !errors.Is(err, ErrNoMemory) || !strings.Contains(fmt.Sprint(err), fmt.Sprint(size)) {
				t.Errorf("Malloc(%d) = %#x, %v", size, a, err)
			}
		}
		if a, err := w.Calloc(1<<40, 1<<40); a != 0 || !errors.Is(err, ErrNoMemory) {
			t.Errorf("Calloc of 1<<80 bytes: %#x, %v", a, err)
		}
		var all []uint64
		for {
			a, err := w.Malloc(1 << 20)
			if err != nil {
				if !errors.Is(err, ErrNoMemory) || len(all) < 3 {
					t.Errorf("after %d: %v", len(all), err)
				}
				break
			}
			memory.Bytes(a, 1<<20)[1<<20-1] = 1 // is really there
			all = append(all, a)
		}
		for range 3 { // and can be used again
			if err := w.Free(all[0]); err != nil {
				return err
			}
			a, err := w.Malloc(1 << 20)
			if err != nil {
				return err
			}
			all = append(all[1:], a)
		}
		return nil
	})
}

func TestCallocClears(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		for range 3 {
			a, err := w.Calloc(1000, 8)
			if err != nil {
				return err
			}
			b := memory.Bytes(a, 8000)
			if i := slices.IndexFunc(b, func(x byte) bool { return x != 0 }); i >= 0 {
				t.Errorf("byte %d is %d", i, b[i])
			}
			for i := range b {
				b[i] = 0xff
			}
			if err := w.Free(a); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestFreeOfWhatIsNoAllocation(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		a, err := w.Malloc(1000)
		if err != nil {
			return err
		}
		for _, bad := range []uint64{1, a + 8, a + 256, ^uint64(0), memory.AddrOf(make([]byte, 8))} {
			if err := w.Free(bad); !errors.Is(err, ErrNotSym) {
				t.Errorf("Free(%#x): %v", bad, err)
			}
		}
		if err := w.Free(a); err != nil {
			return err
		}
		if err := w.Free(a); !errors.Is(err, ErrNotSym) {
			t.Errorf("a second Free: %v", err)
		}
		if b, err := w.Malloc(8); err != nil || b == 0 {
			t.Errorf("Malloc after that: %#x, %v", b, err)
		}
		return nil
	})
}

func TestCallsThatDifferAreAnErrorOnAllPEs(t *testing.T) {
	inModes(t, 3, func(t *testing.T, w *World) error {
		a, err := w.Malloc(64)
		if err != nil {
			return err
		}
		before := w.Describe().Heap
		differ := func(what string, err error, words ...string) {
			if !errors.Is(err, ErrMismatch) {
				t.Errorf("PE %d, %s: %v", w.pes.Me, what, err)
			}
			for _, word := range words {
				if !strings.Contains(fmt.Sprint(err), word) {
					t.Errorf("PE %d, %s: %v, want %q in it", w.pes.Me, what, err, word)
				}
			}
			if after := w.Describe().Heap; after != before {
				t.Errorf("%s: the heap is %+v, was %+v", what, after, before)
			}
		}
		size := []uint64{128, 4096, 128}[w.pes.Me]
		_, err = w.Malloc(size)
		differ("sizes", err, "PEs 0, 2 malloc of 128 bytes", "PE 1 malloc of 4096 bytes")
		_, err = w.MallocAlign([]uint64{512, 512, 3}[w.pes.Me], 64)
		differ("alignments", err, "PEs 0, 1", "PE 2", "aligned to 3")
		_, err = w.Malloc([]uint64{8, 0, 1 << 50}[w.pes.Me])
		differ("something, nothing, too much", err, "PE 0", "PE 1", "PE 2")
		if w.pes.Me == 0 {
			err = w.Free(a)
		} else {
			_, err = w.Malloc(64)
		}
		differ("free and malloc", err, "PE 0 free", "PEs 1, 2 malloc")
		err = w.Free(a + []uint64{0, 8, 0}[w.pes.Me])
		differ("what to free", err, "PEs 0, 2", "PE 1 free", "nowhere")
		b, err := w.Malloc(64)
		if err != nil {
			return err
		}
		memory.Bytes(w.Ptr(b, (w.pes.Me+1)%3), 64)[0] = 1
		return errors.Join(w.Free(b), w.Free(a))
	})
}

func TestMallocNamesWhoDoesNotCome(t *testing.T) {
	groups := bootstrap.Local(3)
	done := make(chan error, 3)
	for i, g := range groups {
		go func() {
			w, err := Init(context.Background(), g, Config{HeapSize: 1 << 20, Timeout: 20 * time.Second})
			if err != nil {
				done <- err
				return
			}
			w.pes.Timeout = 200 * time.Millisecond
			if i == 1 {
				<-w.pes.Broken() // it comes too late
			} else if _, err = w.Malloc(8); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "[1]") {
				err = fmt.Errorf("PE %d: %v", i, err)
			} else {
				err = nil
			}
			if _, after := w.Malloc(8); after == nil {
				err = errors.Join(err, errors.New("a broken World gave memory"))
			}
			_ = w.Finalize(context.Background()) // returns the fault again
			done <- err
		}()
	}
	for range groups {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestConfigsThatDiffer(t *testing.T) {
	groups := bootstrap.Local(2)
	done := make(chan error, 2)
	for i, g := range groups {
		go func() {
			w, err := Init(context.Background(), g, Config{HeapSize: 1 << (20 + i), Timeout: 10 * time.Second})
			if err == nil {
				_ = w.Finalize(context.Background())
			}
			done <- err
		}()
	}
	for range groups {
		if err := <-done; !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "2097152") {
			t.Error(err)
		}
	}
}

// The PEs of a random program that all run alike agree with a model of what is allocated and hold
// distinct memory.
func TestRandomAllocations(t *testing.T) {
	inModes(t, 2, func(t *testing.T, w *World) error {
		rnd := rand.New(rand.NewPCG(3, 4)) // the same on all PEs
		type held struct {
			at, n uint64
			mark  byte
		}
		var live []held
		check := func(h held) {
			b := memory.Bytes(h.at, h.n)
			if b[0] != h.mark || b[h.n/2] != h.mark || b[h.n-1] != h.mark {
				t.Errorf("%d bytes were overwritten", h.n)
			}
		}
		for i := range 150 {
			if len(live) > 0 && rnd.IntN(5) < 2 {
				k := rnd.IntN(len(live))
				check(live[k])
				if err := w.Free(live[k].at); err != nil {
					return err
				}
				live = slices.Delete(live, k, k+1)
				continue
			}
			n, align := 1+rnd.Uint64N(1<<rnd.IntN(19)), uint64(1)<<rnd.IntN(14)
			a, err := w.MallocAlign(align, n)
			if errors.Is(err, ErrNoMemory) {
				continue
			}
			if err != nil {
				return err
			}
			h := held{a, n, byte(i + 1)}
			b := memory.Bytes(a, n)
			for j := range b {
				b[j] = h.mark
			}
			live = append(live, h)
		}
		for _, h := range live {
			check(h)
			if err := w.Free(h.at); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestRegisterBuffer(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		b := make([]byte, 10000)
		defer runtime.KeepAlive(b)
		at := memory.AddrOf(b)
		for _, c := range []struct {
			addr, size uint64
		}{{0, 8}, {at, 0}, {at, ^uint64(0)}, {8, 8}, {1 << 46, 4096}} {
			if err := w.RegisterBuffer(c.addr, c.size); !errors.Is(err, ErrInvalid) {
				t.Errorf("%d bytes at %#x: %v", c.size, c.addr, err)
			}
		}
		if err := w.RegisterBuffer(at, 5000); err != nil {
			return err
		}
		if err := w.RegisterBuffer(at+4999, 5000); !errors.Is(err, ErrInvalid) {
			t.Errorf("what overlaps: %v", err)
		}
		if err := w.RegisterBuffer(at+5000, 5000); err != nil {
			return err
		}
		if err := w.DeregisterBuffer(at, 10000); !errors.Is(err, ErrInvalid) {
			t.Errorf("what was not registered as one: %v", err)
		}
		return errors.Join(w.DeregisterBuffer(at, 5000), w.DeregisterBuffer(at+5000, 5000))
	})
}
