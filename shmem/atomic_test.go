// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"mori/core/memory"
)

// after is what op leaves where x was.
func after(op AtomicOp, x, v, compare uint64) uint64 {
	switch op {
	case AtomicInc, AtomicFetchInc:
		return x + 1
	case AtomicAdd, AtomicFetchAdd, AtomicSignalAdd:
		return x + v
	case AtomicAnd, AtomicFetchAnd:
		return x & v
	case AtomicOr, AtomicFetchOr:
		return x | v
	case AtomicXor, AtomicFetchXor:
		return x ^ v
	case AtomicFetch:
		return x
	case AtomicCompareSwap:
		if x != compare {
			return x
		}
	}
	return v
}

func TestAtomicsDoWhatTheyAreNamed(t *testing.T) {
	onEveryPath(t, 2, 4096, func(t *testing.T, w *World, mem uint64) error {
		if w.MyPE() == 1 {
			return nil
		}
		own := ownMemory(t, 64)
		rng := rand.New(rand.NewPCG(7, 8))
		for op := AtomicInc; op <= AtomicCompareSwap; op++ {
			for _, size := range []int{4, 8} {
				if op == 11 || size == 4 && op >= AtomicSignal && op <= AtomicSignalAdd {
					continue
				}
				for range 20 {
					err := atomicOnce(w, rng, op, size, mem, own)
					if err != nil {
						return fmt.Errorf("%v of %d bytes: %w", op, size, err)
					}
				}
			}
		}
		return nil
	})
}

// atomicOnce compares what op does with two words of PE 1 with what it should do with the one of
// them.
func atomicOnce(w *World, rng *rand.Rand, op AtomicOp, size int, mem, own uint64) error {
	x, v, other := rng.Uint64(), rng.Uint64(), rng.Uint64()
	mask := ^uint64(0) >> (64 - 8*size)
	compare := x
	if rng.IntN(2) == 0 {
		compare = rng.Uint64()
	}
	want := x&^mask | after(op, x, v, compare)&mask
	if compare&mask == x&mask && op == AtomicCompareSwap {
		want = x&^mask | v&mask
	}
	memory.Store64(own, x)
	memory.Store64(own+8, other)
	err := errors.Join(w.Put(mem, own, 16, 1), w.Quiet())
	var old uint64
	if op < AtomicFetch {
		err = errors.Join(err, w.Atomic(op, size, mem, v, 1))
	} else {
		old, err = w.FetchAtomic(op, size, mem, v, compare, 1)
	}
	if err = errors.Join(err, w.Quiet(), w.Get(own, mem, 16, 1)); err != nil {
		return err
	}
	if got := memory.Load64(own); got != want || memory.Load64(own+8) != other || op >= AtomicFetch && old != x&mask {
		return fmt.Errorf("of %#x with %#x, compared with %#x: left %#x, want %#x; returned %#x", x, v, compare, got, want, old)
	}
	return nil
}

func TestAtomicsOfManyAddUp(t *testing.T) {
	const threads, pes = 3, 3
	onEveryPath(t, pes, 4096, func(t *testing.T, w *World, mem uint64) error {
		rounds := 300
		if w.gpu != nil { // each is a launch
			rounds = 10
		}
		var wait sync.WaitGroup
		errs := make([]error, threads)
		for i := range threads {
			wait.Add(1)
			go func() {
				defer wait.Done()
				bit := uint64(1) << (w.MyPE()*threads + i)
				for range rounds {
					for pe := range pes {
						_, err := w.FetchAtomic(AtomicFetchXor, 8, mem+16, bit, 0, pe)
						errs[i] = errors.Join(errs[i], err, w.Atomic(AtomicInc, 8, mem, 0, pe), w.Atomic(AtomicAdd, 4, mem+8, 2, pe), increase(w, mem+24, pe))
					}
				}
			}()
		}
		wait.Wait()
		if err := errors.Join(append(errs, w.Quiet(), w.BarrierAll())...); err != nil {
			return err
		}
		sum := uint64(threads * rounds * pes)
		if a, b, c, d := getWord(t, w, mem), uint32(getWord(t, w, mem+8)), getWord(t, w, mem+16), uint32(getWord(t, w, mem+24)); a != sum || uint64(b) != 2*sum || c != 0 || uint64(d) != sum {
			return fmt.Errorf("added up to %d, %d, %#x, %d, want %d", a, b, c, d, sum)
		}
		return nil
	})
}

// increase adds 1 to a half word by compare and swap.
func increase(w *World, at uint64, pe int) error {
	for x := uint64(0); ; {
		old, err := w.FetchAtomic(AtomicCompareSwap, 4, at, x+1, x, pe)
		if err != nil || old == x {
			return err
		}
		x = old
	}
}

func TestBadAtomics(t *testing.T) {
	onHeaps(t, 2, func(w *World) error {
		mem, err := w.Malloc(64)
		if err != nil {
			return err
		}
		own := ownMemory(t, 64)
		fetch := func(op AtomicOp, size int, dest uint64, pe int) func() error {
			return func() error { _, err := w.FetchAtomic(op, size, dest, 1, 1, pe); return err }
		}
		update := func(op AtomicOp, size int, dest uint64, pe int) func() error {
			return func() error { return w.Atomic(op, size, dest, 1, pe) }
		}
		err = allRefused([]refusal{
			{"op 0", ErrInvalid, update(0, 8, mem, 1)},
			{"ack", ErrInvalid, update(1, 8, mem, 1)},
			{"op -1", ErrInvalid, update(-1, 8, mem, 1)},
			{"end of those that do not fetch", ErrInvalid, update(11, 8, mem, 1)},
			{"fetching op that does not return", ErrInvalid, update(AtomicFetchAdd, 8, mem, 1)},
			{"op 20", ErrInvalid, fetch(20, 8, mem, 1)},
			{"op that does not fetch", ErrInvalid, fetch(AtomicAdd, 8, mem, 1)},
			{"2 bytes", ErrInvalid, update(AtomicAdd, 2, mem, 1)},
			{"0 bytes", ErrInvalid, fetch(AtomicFetch, 0, mem, 1)},
			{"16 bytes", ErrInvalid, fetch(AtomicSwap, 16, mem, 1)},
			{"signal of 4 bytes", ErrInvalid, update(AtomicSignalSet, 4, mem, 1)},
			{"between words", ErrInvalid, update(AtomicSet, 8, mem+4, 1)},
			{"between half words", ErrInvalid, fetch(AtomicFetchOr, 4, mem+2, 1)},
			{"PE 2", ErrInvalid, update(AtomicInc, 8, mem, 2)},
			{"PE -1", ErrInvalid, fetch(AtomicFetch, 4, mem, -1)},
			{"local memory", ErrNotSym, update(AtomicInc, 8, own, 1)},
			{"nil", ErrNotSym, fetch(AtomicFetch, 8, 0, 1)},
			{"the heap's end", ErrNotSym, update(AtomicInc, 8, w.heap.Main().Base+w.heap.Main().Have(), 1)},
		})
		if err != nil {
			return err
		}
		if err := w.BarrierAll(); err != nil {
			return err
		}
		if x := getWord(t, w, mem); x != 0 {
			t.Errorf("%#x was written", x)
		}
		return w.Free(mem)
	})
}

func TestNamesOfAtomics(t *testing.T) {
	for op, want := range map[AtomicOp]string{AtomicInc: "inc", AtomicCompareSwap: "compare_swap", 11: "atomic 11", -3: "atomic -3", 99: "atomic 99"} {
		if got := op.String(); got != want {
			t.Errorf("%d is %q, want %q", int(op), got, want)
		}
	}
}
