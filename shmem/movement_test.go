// SPDX-License-Identifier: MIT

package shmem

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"mori/core/fabric"
	"mori/core/memory"
)

// pattern is the i-th byte that PE pe has in a test.
func pattern(pe, i int) byte { return byte(pe*37 + i*11 + i>>8*5 + 1) }

// field is symmetric memory with a guard behind it. bytes are its bytes, or, of a heap on GPUs, a
// copy of them: what push makes them and pull brings.
type field struct {
	w     *World
	at    uint64
	bytes []byte
}

const guard = 64

func newField(w *World, n int) (field, error) {
	at, err := w.Malloc(uint64(n + guard))
	if err != nil {
		return field{}, err
	}
	f := field{w: w, at: at}
	if w.gpu == nil {
		f.bytes = memory.Bytes(at, uint64(n+guard))
	} else {
		f.bytes = make([]byte, n+guard)
	}
	return f, nil
}

func (f field) push() error {
	if f.w.gpu == nil {
		return nil
	}
	defer runtime.KeepAlive(f.bytes)
	return f.w.gpu.Copy(f.at, memory.AddrOf(f.bytes), uint64(len(f.bytes)))
}

func (f field) pull() error {
	if f.w.gpu == nil {
		return nil
	}
	defer runtime.KeepAlive(f.bytes)
	return f.w.gpu.Copy(memory.AddrOf(f.bytes), f.at, uint64(len(f.bytes)))
}

// clear fills it with what no test expects.
func (f field) clear() error {
	for i := range f.bytes {
		f.bytes[i] = 0xee
	}
	return f.push()
}

// check compares the first bytes with what they should be, the others with what clear left.
func (f field) check(n int, want func(i int) byte) error {
	if err := f.pull(); err != nil {
		return err
	}
	for i, got := range f.bytes {
		expected := byte(0xee)
		if i < n {
			expected = want(i)
		}
		if got != expected {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, n, got, expected)
		}
	}
	return nil
}

// lengths are those that tests of data movement use.
var lengths = []int{0, 1, 8, 13, 4501}

const longest = 4501

// movement tests a collective call: each of n PEs has a stamped source of perPE bytes for each PE,
// and its destination is checked.
func movement(t *testing.T, f func(w *World, dest, src field, n int) error) {
	everyWay(t, []int{1, 3, 8}, func(t *testing.T, w *World) error {
		dest, err := newField(w, w.NPEs()*longest)
		if err != nil {
			return err
		}
		src, err := newField(w, w.NPEs()*longest)
		if err != nil {
			return err
		}
		for i := range src.bytes {
			src.bytes[i] = pattern(w.MyPE(), i)
		}
		if err := src.push(); err != nil {
			return err
		}
		for round := range 2 { // with nobody waiting in between
			for _, n := range lengths {
				if err := dest.clear(); err != nil {
					return err
				}
				if err := f(w, dest, src, n); err != nil {
					return fmt.Errorf("round %d, %d bytes: %w", round, n, err)
				}
			}
		}
		if err := src.pull(); err != nil {
			return err
		}
		for i, b := range src.bytes {
			if b != pattern(w.MyPE(), i) {
				return fmt.Errorf("byte %d of the source has changed", i)
			}
		}
		return nil
	})
}

func TestBroadcast(t *testing.T) {
	movement(t, func(w *World, dest, src field, n int) error {
		for _, root := range []int{0, w.NPEs() / 2, w.NPEs() - 1} {
			if err := w.TeamWorld().Broadcast(dest.at, src.at, uint64(n), root); err != nil {
				return err
			}
			if err := dest.check(n, func(i int) byte { return pattern(root, i) }); err != nil {
				return fmt.Errorf("from PE %d: %w", root, err)
			}
			if err := w.SyncAll(); err != nil { // destinations are checked before the next call may write to them
				return err
			}
		}
		return nil
	})
}

func TestBroadcastInPlace(t *testing.T) {
	everyWay(t, []int{3}, func(t *testing.T, w *World) error {
		f, err := newField(w, 100)
		if err != nil {
			return err
		}
		if err := f.clear(); err != nil {
			return err
		}
		for i := range 100 {
			f.bytes[i] = pattern(w.MyPE(), i)
		}
		if err := f.push(); err != nil {
			return err
		}
		if err := w.TeamWorld().Broadcast(f.at, f.at, 100, 1); err != nil {
			return err
		}
		return f.check(100, func(i int) byte { return pattern(1, i) })
	})
}

func TestFCollect(t *testing.T) {
	movement(t, func(w *World, dest, src field, n int) error {
		if err := w.TeamWorld().FCollect(dest.at, src.at, uint64(n)); err != nil {
			return err
		}
		if err := dest.check(n*w.NPEs(), func(i int) byte { return pattern(i/n, i%n) }); err != nil {
			return err
		}
		return w.SyncAll()
	})
}

func TestCollect(t *testing.T) {
	movement(t, func(w *World, dest, src field, n int) error {
		var whose []int
		var from []int
		has := func(pe int) int { return n * (pe % 3) / 2 } // some have nothing
		for pe := range w.NPEs() {
			for i := range has(pe) {
				whose, from = append(whose, pe), append(from, i)
			}
		}
		if err := w.TeamWorld().Collect(dest.at, src.at, uint64(has(w.MyPE()))); err != nil {
			return err
		}
		if err := dest.check(len(whose), func(i int) byte { return pattern(whose[i], from[i]) }); err != nil {
			return err
		}
		return w.SyncAll()
	})
}

func TestAllToAll(t *testing.T) {
	movement(t, func(w *World, dest, src field, n int) error {
		if err := w.TeamWorld().AllToAll(dest.at, src.at, uint64(n)); err != nil {
			return err
		}
		if err := dest.check(n*w.NPEs(), func(i int) byte { return pattern(i/n, w.MyPE()*n+i%n) }); err != nil {
			return err
		}
		return w.SyncAll()
	})
}

func TestAllToAllS(t *testing.T) {
	const dst, sst, elem = 3, 2, 4
	movement(t, func(w *World, dest, src field, n int) error {
		nelems := min(n, 1000) / (dst * elem)
		if err := w.TeamWorld().AllToAllS(dest.at, src.at, dst, sst, uint64(nelems), elem); err != nil {
			return err
		}
		last := (nelems*w.NPEs()-1)*dst*elem + elem
		err := dest.check(max(last, 0), func(i int) byte {
			at, b := i/elem/dst, i%elem
			if i/elem%dst != 0 {
				return 0xee
			}
			from, k := at/nelems, at%nelems
			return pattern(from, (w.MyPE()*nelems+k)*sst*elem+b)
		})
		if err != nil {
			return err
		}
		return w.SyncAll()
	})
}

// A badCall is what must be refused on all PEs with no memory touched.
type badCall struct {
	name string
	call func(w *World, dest, src uint64) error
	want error
}

var badCalls = []badCall{
	{"broadcast from a PE that there is not", func(w *World, dest, src uint64) error { return w.TeamWorld().Broadcast(dest, src, 8, w.NPEs()) }, ErrInvalid},
	{"broadcast of what overlaps", func(w *World, dest, src uint64) error { return w.TeamWorld().Broadcast(dest, dest+4, 8, 0) }, ErrInvalid},
	{"broadcast to nil", func(w *World, dest, src uint64) error { return w.TeamWorld().Broadcast(0, src, 8, 0) }, ErrNotSym},
	{"broadcast of what is not symmetric", func(w *World, dest, src uint64) error {
		return w.TeamWorld().Broadcast(dest, memory.AddrOf(make([]byte, 8)), 8, 0)
	}, ErrNotSym},
	{"broadcast that is too long", func(w *World, dest, src uint64) error { return w.TeamWorld().Broadcast(dest, src, 1<<40, 0) }, ErrNotSym},
	{"fcollect that is too long for numbers", func(w *World, dest, src uint64) error { return w.TeamWorld().FCollect(dest, src, 1<<62+1) }, ErrInvalid},
	{"fcollect in place", func(w *World, dest, src uint64) error { return w.TeamWorld().FCollect(dest, dest, 8) }, ErrInvalid},
	{"collect in place", func(w *World, dest, src uint64) error { return w.TeamWorld().Collect(dest, dest, 8) }, ErrInvalid},
	{"alltoall in place", func(w *World, dest, src uint64) error { return w.TeamWorld().AllToAll(dest, dest, 8) }, ErrInvalid},
	{"alltoalls without a stride", func(w *World, dest, src uint64) error { return w.TeamWorld().AllToAllS(dest, src, 0, 1, 8, 8) }, ErrInvalid},
	{"reduction of no type", func(w *World, dest, src uint64) error { return w.TeamWorld().Reduce(ReduceSum, 77, dest, src, 8) }, ErrInvalid},
	{"reduction by no op", func(w *World, dest, src uint64) error { return w.TeamWorld().Reduce(77, Float16, dest, src, 8) }, ErrInvalid},
	{"bits of floats", func(w *World, dest, src uint64) error { return w.TeamWorld().Reduce(ReduceXor, Float16, dest, src, 8) }, ErrInvalid},
	{"reduction that is not aligned", func(w *World, dest, src uint64) error {
		return w.TeamWorld().Reduce(ReduceSum, BFloat16, dest+1, src, 8)
	}, ErrInvalid},
	{"different lengths", func(w *World, dest, src uint64) error { return w.TeamWorld().FCollect(dest, src, uint64(8+w.MyPE()/2)) }, ErrMismatch},
	{"different roots", func(w *World, dest, src uint64) error { return w.TeamWorld().Broadcast(dest, src, 8, w.MyPE()/2) }, ErrMismatch},
	{"different places", func(w *World, dest, src uint64) error { return w.TeamWorld().AllToAll(dest+uint64(w.MyPE()/2), src, 8) }, ErrMismatch},
	{"different ops", func(w *World, dest, src uint64) error {
		return w.TeamWorld().Reduce(ReduceSum+ReduceOp(w.MyPE()/2), BFloat16, dest, src, 8)
	}, ErrMismatch},
	{"different calls", func(w *World, dest, src uint64) error {
		if w.MyPE() < 2 {
			return w.TeamWorld().AllToAll(dest, src, 8)
		}
		return w.TeamWorld().FCollect(dest, src, 8)
	}, ErrMismatch},
	{"one PE's arguments", func(w *World, dest, src uint64) error {
		if w.MyPE() == 2 {
			dest = 0
		}
		err := w.TeamWorld().AllToAll(dest, src, 8)
		if w.MyPE() == 2 && !errors.Is(err, ErrNotSym) {
			return fmt.Errorf("the PE itself: %w", err)
		}
		return err
	}, ErrMismatch},
}

func TestBadCallsTouchNothing(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			runWay(t, 3, way, Config{}, func(w *World) error {
				dest, err := newField(w, 1024)
				if err != nil {
					return err
				}
				src, err := newField(w, 1024)
				if err != nil {
					return err
				}
				if err := dest.clear(); err != nil {
					return err
				}
				for _, c := range badCalls {
					if err := c.call(w, dest.at, src.at); !errors.Is(err, c.want) {
						return fmt.Errorf("%s: want %w, have %w", c.name, c.want, err)
					}
					if err := dest.check(0, nil); err != nil {
						return fmt.Errorf("%s: %w", c.name, err)
					}
				}
				return w.TeamWorld().FCollect(dest.at, src.at, 8) // the team is as good as before
			})
		})
	}
}

func TestNoBytesNeedNoAddress(t *testing.T) {
	run(t, 2, Config{}, func(w *World) error {
		world := w.TeamWorld()
		return errors.Join(world.Broadcast(0, 0, 0, 1), world.FCollect(0, 0, 0), world.Collect(0, 0, 0), world.AllToAll(0, 0, 0),
			world.AllToAllS(0, 0, 1, 1, 0, 8), world.Reduce(ReduceSum, Float16, 0, 0, 0))
	})
}

func TestCollectivesOfAFinalizedWorld(t *testing.T) {
	var w *World
	run(t, 1, Config{}, func(world *World) error { w = world; return nil })
	for _, c := range badCalls {
		if err := c.call(w, 0, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := w.BarrierAll(); !errors.Is(err, ErrClosed) {
		t.Errorf("barrier: %v", err)
	}
	_ = w.Finalize(context.Background())
}

func TestCollectivesAllocateNothing(t *testing.T) {
	everyWay(t, []int{2}, func(t *testing.T, w *World) error {
		const rounds = 50
		if w.net != nil || w.gpu != nil {
			return nil // a network may allocate, and waits for a GPU do
		}
		dest, err := newField(w, 1<<16)
		if err != nil {
			return err
		}
		src, err := newField(w, 1<<16)
		if err != nil {
			return err
		}
		world := w.TeamWorld()
		all := func() error {
			return errors.Join(world.Broadcast(dest.at, src.at, 100, 1), world.FCollect(dest.at, src.at, 100), world.AllToAll(dest.at, src.at, 100),
				world.AllToAllS(dest.at, src.at, 2, 2, 10, 8), world.Reduce(ReduceXor, fabric.Int32, dest.at, src.at, 100),
				world.Reduce(ReduceSum, fabric.Int32, dest.at, src.at, 10000))
		}
		if err := all(); err != nil { // the scratch memory of reductions comes into being
			return err
		}
		if w.MyPE() > 0 {
			for range rounds + 1 {
				if err := all(); err != nil {
					return err
				}
			}
			return nil
		}
		if n := testing.AllocsPerRun(rounds, func() { err = errors.Join(err, all()) }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		return err
	})
}
