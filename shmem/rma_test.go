// SPDX-License-Identifier: MIT

package shmem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"mori/core/bootstrap"
	"mori/core/fabric"
	"mori/core/memory"
)

// local returns the address of n bytes outside Go's heap, as callers have them, until the test
// ends.
func ownMemory(t *testing.T, n uint64) uint64 {
	t.Helper()
	seg, err := memory.NewSegment("local", n, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := seg.Close(); err != nil {
			t.Error(err)
		}
	})
	return seg.Addr()
}

func TestPutAndGetOfEverySize(t *testing.T) {
	const room = 1<<20 + 64
	onEveryPath(t, 3, 2*room, func(t *testing.T, w *World, mem uint64) error {
		right, left := (w.MyPE()+1)%3, (w.MyPE()+2)%3
		own := ownMemory(t, room)
		for _, n := range []uint64{1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 255, 4096, 65537, 1 << 20} {
			for at := range uint64(2) { // aligned, and not
				poke(t, w, own+at, filled(int(n), w.MyPE()))
				if err := w.Put(mem+3*at, own+at, n, right); err != nil {
					return err
				}
				poke(t, w, own+at, make([]byte, n)) // Put has read it
				if err := w.BarrierAll(); err != nil {
					return err
				}
				if !bytes.Equal(peek(t, w, mem+3*at, n), filled(int(n), left)) {
					return fmt.Errorf("put of %d bytes to %d: other bytes", n, 3*at)
				}
				if err := w.Get(own+at, mem+3*at, n, right); err != nil {
					return err
				}
				if !bytes.Equal(peek(t, w, own+at, n), filled(int(n), w.MyPE())) {
					return fmt.Errorf("get of %d bytes from %d: other bytes", n, 3*at)
				}
				if err := w.BarrierAll(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestNbiIsDoneAfterQuiet(t *testing.T) {
	const each, count = 1 << 14, 32
	onEveryPath(t, 2, each*count, func(t *testing.T, w *World, mem uint64) error {
		other := 1 - w.MyPE()
		own := ownMemory(t, each*count)
		poke(t, w, own, filled(each*count, w.MyPE()))
		for i := range uint64(count) {
			if err := w.PutNbi(mem+i*each, own+i*each, each, other); err != nil {
				return err
			}
		}
		if err := errors.Join(w.Quiet(), w.BarrierAll()); err != nil {
			return err
		}
		if !bytes.Equal(peek(t, w, mem, each*count), filled(each*count, other)) {
			return errors.New("put_nbi: other bytes")
		}
		for i := range uint64(count) {
			if err := w.GetNbi(own+i*each, mem+i*each, each, w.MyPE()); err != nil {
				return err
			}
		}
		if err := w.Quiet(); err != nil {
			return err
		}
		if !bytes.Equal(peek(t, w, own, each*count), filled(each*count, other)) {
			return errors.New("get_nbi: other bytes")
		}
		return nil
	})
}

// TestRandomTransfers compares PE 1's memory with a model after each of many transfers that PE 0
// makes.
func TestRandomTransfers(t *testing.T) {
	const room, rounds = 4096, 400
	onEveryPath(t, 2, room, func(t *testing.T, w *World, mem uint64) error {
		if w.MyPE() == 1 {
			return nil
		}
		own, seen := ownMemory(t, room), ownMemory(t, room)
		rng := rand.New(rand.NewPCG(5, 6))
		model, mine := make([]byte, room), memory.Bytes(own, room)
		for round := range rounds {
			for i := range mine {
				mine[i] = byte(rng.Uint32())
			}
			want := bytes.Clone(mine)
			s := randomShape(rng, room)
			var err error
			switch what := rng.IntN(4); what {
			case 0:
				err = w.Put(mem+s.far, own+s.near, s.elem*s.count, 1)
				copy(model[s.far:][:s.elem*s.count], mine[s.near:])
			case 1:
				err = w.Get(own+s.near, mem+s.far, s.elem*s.count, 1)
				copy(want[s.near:][:s.elem*s.count], model[s.far:])
			case 2:
				err = w.IPut(mem+s.far, own+s.near, s.farStride, s.nearStride, s.count, s.elem, 1)
				s.each(func(far, near uint64) { copy(model[far:][:s.elem], mine[near:]) })
			case 3:
				err = w.IGet(own+s.near, mem+s.far, s.nearStride, s.farStride, s.count, s.elem, 1)
				s.each(func(far, near uint64) { copy(want[near:][:s.elem], model[far:]) })
			}
			if err != nil {
				return err
			}
			if err := errors.Join(w.Quiet(), w.Get(seen, mem, room, 1)); err != nil {
				return err
			}
			if !bytes.Equal(memory.Bytes(seen, room), model) || !bytes.Equal(mine, want) {
				return fmt.Errorf("round %d: %+v gave other bytes", round, s)
			}
		}
		return nil
	})
}

// A shape is where the elements of a transfer are.
type shape struct {
	far, near, elem, count uint64
	farStride, nearStride  int64
}

// randomShape fits into room bytes, also without strides.
func randomShape(rng *rand.Rand, room uint64) (s shape) {
	s.elem = []uint64{1, 2, 3, 4, 8, 12, 16}[rng.IntN(7)]
	s.count = uint64(rng.IntN(12))
	s.farStride, s.nearStride = 1+rng.Int64N(5), 1+rng.Int64N(5)
	s.far, s.near = rng.Uint64N(room-12*5*16), rng.Uint64N(room-12*5*16)
	return s
}

func (s shape) each(f func(far, near uint64)) {
	for i := range s.count {
		f(s.far+i*uint64(s.farStride)*s.elem, s.near+i*uint64(s.nearStride)*s.elem)
	}
}

func TestPutToOneselfMayOverlap(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		mem, err := w.Malloc(1 << 16)
		if err != nil {
			return err
		}
		at := memory.Bytes(mem, 1<<16)
		for _, shift := range []int{1, 8, 100, 5000} {
			copy(at, filled(1<<16, 1))
			want := bytes.Clone(at)
			copy(want[shift:], want[:40000])
			if err := w.Put(mem+uint64(shift), mem, 40000, 0); err != nil {
				return err
			}
			if !bytes.Equal(at, want) {
				t.Errorf("put %d bytes up: other bytes", shift)
			}
		}
		return w.Free(mem)
	})
}

func TestBadTransfers(t *testing.T) {
	const room = 4096
	onHeaps(t, 2, func(w *World) error {
		mem, err := w.Malloc(room)
		if err != nil {
			return err
		}
		own := ownMemory(t, room)
		bases := w.heap.Main().Base
		end := bases + w.heap.Main().Have()
		type transfer = func(dest, src, n uint64, pe int) error
		var list []refusal
		for name, f := range map[string]transfer{"put": w.Put, "put_nbi": w.PutNbi} {
			list = append(list,
				refusal{name + " to PE 2", ErrInvalid, func() error { return f(mem, own, 8, 2) }},
				refusal{name + " to PE -1", ErrInvalid, func() error { return f(mem, own, 8, -1) }},
				refusal{name + " of nothing to PE 2", ErrInvalid, func() error { return f(mem, own, 0, 2) }},
				refusal{name + " to local memory", ErrNotSym, func() error { return f(own, own, 8, 1) }},
				refusal{name + " to nil", ErrNotSym, func() error { return f(0, own, 8, 1) }},
				refusal{name + " past the end", ErrNotSym, func() error { return f(end-4, own, 8, 1) }},
				refusal{name + " before the start", ErrNotSym, func() error { return f(bases-4, own, 8, 1) }},
				refusal{name + " of too much", ErrNotSym, func() error { return f(mem, own, ^uint64(0), 1) }},
				refusal{name + " from nil", ErrInvalid, func() error { return f(mem, 0, 8, 1) }},
				refusal{name + " from nowhere", ErrInvalid, func() error { return f(mem, 1<<46, 8, 1) }},
				refusal{name + " from the last bytes", ErrInvalid, func() error { return f(mem, ^uint64(0)-3, 8, 1) }},
			)
		}
		for name, f := range map[string]transfer{"get": w.Get, "get_nbi": w.GetNbi} {
			list = append(list,
				refusal{name + " from PE 2", ErrInvalid, func() error { return f(own, mem, 8, 2) }},
				refusal{name + " from local memory", ErrNotSym, func() error { return f(own, own, 8, 1) }},
				refusal{name + " past the end", ErrNotSym, func() error { return f(own, end-4, 8, 1) }},
				refusal{name + " to nil", ErrInvalid, func() error { return f(0, mem, 8, 1) }},
				refusal{name + " to nowhere", ErrInvalid, func() error { return f(1<<46, mem, 8, 1) }},
			)
		}
		for name, f := range map[string]func(sym, own uint64, ss, os int64, n, elem uint64, pe int) error{
			"iput": w.IPut,
			"iget": func(sym, own uint64, ss, os int64, n, elem uint64, pe int) error {
				return w.IGet(own, sym, os, ss, n, elem, pe)
			},
		} {
			list = append(list,
				refusal{name + " with PE 2", ErrInvalid, func() error { return f(mem, own, 1, 1, 1, 8, 2) }},
				refusal{name + " with stride 0", ErrInvalid, func() error { return f(mem, own, 0, 1, 1, 8, 1) }},
				refusal{name + " with stride -1", ErrInvalid, func() error { return f(mem, own, 1, -1, 1, 8, 1) }},
				refusal{name + " of elements of 0", ErrInvalid, func() error { return f(mem, own, 1, 1, 1, 0, 1) }},
				refusal{name + " with more than there is", ErrInvalid, func() error { return f(mem, own, 1<<62, 1, 9, 8, 1) }},
				refusal{name + " past the end", ErrNotSym, func() error { return f(end-16, own, 2, 1, 2, 8, 1) }},
				refusal{name + " with nil", ErrInvalid, func() error { return f(mem, 0, 1, 1, 2, 8, 1) }},
				refusal{name + " with nowhere", ErrInvalid, func() error { return f(mem, 1<<46, 1, 1, 2, 8, 1) }},
			)
		}
		if err := allRefused(list); err != nil {
			return err
		}
		nothing := errors.Join(w.Put(0, 0, 0, 1), w.GetNbi(0, 0, 0, 1), w.IPut(0, 0, 1, 1, 0, 8, 1), w.IGet(0, 0, 7, 2, 0, 8, 0))
		if err := errors.Join(nothing, w.BarrierAll()); err != nil {
			return err
		}
		if !bytes.Equal(peek(t, w, mem, room), make([]byte, room)) {
			t.Error("something was touched")
		}
		return w.Free(mem)
	})
}

func TestTransfersAfterTheEnd(t *testing.T) {
	var worlds [2]*World
	run(t, 2, Config{}, func(w *World) error {
		worlds[w.MyPE()] = w
		return nil
	})
	own := ownMemory(t, 64)
	fault := errors.New("PE 7 is dead")
	broken, err := Init(context.Background(), bootstrap.Local(1)[0], Config{HeapSize: mib})
	if err != nil {
		t.Fatal(err)
	}
	mem := broken.heap.Main().Base + 256
	defer func() {
		if err := broken.Finalize(context.Background()); !errors.Is(err, fault) {
			t.Errorf("finalize: %v", err)
		}
	}()
	if err := broken.Put(mem, own, 8, 0); err != nil {
		t.Errorf("put before the end: %v", err)
	}
	broken.pes.Fail(fault)
	for _, c := range []struct {
		w    *World
		want error
	}{{worlds[0], ErrClosed}, {broken, fault}} {
		w := c.w
		err := allRefused([]refusal{
			{"put", c.want, func() error { return w.Put(mem, own, 8, 0) }},
			{"get", c.want, func() error { return w.GetNbi(own, mem, 8, 0) }},
			{"iput", c.want, func() error { return w.IPut(mem, own, 1, 1, 1, 8, 0) }},
			{"fence", c.want, w.Fence},
			{"quiet", c.want, w.Quiet},
			{"atomic", c.want, func() error { return w.Atomic(AtomicInc, 8, mem, 0, 0) }},
			{"put_signal", c.want, func() error { return w.PutSignal(mem, own, 8, mem+64, 1, SignalSet, 0) }},
			{"signal_fetch", c.want, func() error { _, err := w.SignalFetch(mem); return err }},
			{"wait_until", c.want, func() error { return w.WaitUntil(mem, fabric.Uint64, CmpEQ, 1) }},
			{"test_any", c.want, func() error { _, err := w.TestAny(mem, 1, nil, fabric.Uint64, CmpEQ, 1); return err }},
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTransfersAllocateNothing(t *testing.T) {
	own := ownMemory(t, 4096)
	run(t, 1, Config{}, func(w *World) error {
		mem, err := w.Malloc(4096)
		if err != nil {
			return err
		}
		memory.Store64(mem+64, 1)
		for name, f := range map[string]func() error{
			"put":    func() error { return w.Put(mem, own, 8, 0) },
			"get":    func() error { return w.Get(own, mem, 4096, 0) },
			"iput":   func() error { return w.IPut(mem, own, 2, 3, 4, 8, 0) },
			"signal": func() error { return w.PutSignal(mem, own, 8, mem+64, 1, SignalAdd, 0) },
			"atomic": func() error { _, err := w.FetchAtomic(AtomicFetchAdd, 4, mem, 1, 0, 0); return err },
			"wait":   func() error { return w.WaitUntil(mem+64, fabric.Uint64, CmpGE, 1) },
			"any":    func() error { _, err := w.WaitUntilAny(mem, 9, nil, fabric.Uint64, CmpGE, 1); return err },
			"test":   func() error { _, err := w.Test(mem+64, fabric.Uint64, CmpGE, 1); return err },
			"order":  func() error { return errors.Join(w.Fence(), w.Quiet()) },
		} {
			var err error
			if n := testing.AllocsPerRun(100, func() { err = f() }); n != 0 || err != nil {
				t.Errorf("%s: %v allocations, error %v", name, n, err)
			}
		}
		return w.Free(mem)
	})
}
