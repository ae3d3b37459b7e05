// SPDX-License-Identifier: MIT

package shmem

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"mori/core/fabric"
	"mori/core/memory"
)

// integers are the types that can be waited for.
var integers = []Type{fabric.Int8, fabric.Uint8, fabric.Int16, fabric.Uint16, fabric.Int32, fabric.Uint32, fabric.Int64, fabric.Uint64}

// numberOf is the number that the lower bytes of v are as a t.
func numberOf(t Type, v uint64) *big.Int {
	bits := uint(8 * t.Size())
	n := new(big.Int).SetUint64(v)
	n.And(n, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(1)))
	if strings.HasPrefix(t.String(), "int") && n.Bit(int(bits)-1) == 1 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits))
	}
	return n
}

// compares is the obvious way to compare.
func compares(t Type, x uint64, c Cmp, v uint64) bool {
	order := numberOf(t, x).Cmp(numberOf(t, v))
	switch c {
	case CmpEQ:
		return order == 0
	case CmpNE:
		return order != 0
	case CmpGT:
		return order > 0
	case CmpGE:
		return order >= 0
	case CmpLT:
		return order < 0
	}
	return order <= 0
}

// store writes the lower bytes of v at addr.
func store(addr, v uint64, size int) {
	for i := range memory.Bytes(addr, uint64(size)) {
		memory.Bytes(addr, uint64(size))[i] = byte(v >> (8 * i))
	}
}

func TestEveryComparison(t *testing.T) {
	values := []uint64{0, 1, 2, 127, 128, 255, 256, 1<<15 - 1, 1 << 15, 1<<16 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, ^uint64(0), ^uint64(0) - 1}
	run(t, 1, Config{}, func(w *World) error {
		mem, err := w.Malloc(256)
		if err != nil {
			return err
		}
		for _, typ := range integers {
			for at := uint64(0); at < 16; at += uint64(typ.Size()) {
				for _, x := range values {
					store(mem, ^x, 16) // a neighbour that must not count
					store(mem+8, ^x, 8)
					store(mem+at, x, typ.Size())
					for _, v := range values {
						for c := CmpEQ; c <= CmpLE; c++ {
							got, err := w.Test(mem+at, typ, c, v)
							if want := compares(typ, x, c, v); err != nil || got != want {
								return fmt.Errorf("%v at %d: %#x %v %#x is %v, error %v", typ, at, x, c, v, got, err)
							}
							if got {
								err = w.WaitUntil(mem+at, typ, c, v)
							}
							if err != nil {
								return err
							}
						}
					}
				}
			}
		}
		return w.Free(mem)
	})
}

func TestTestsOfSeveral(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		mem, err := w.Malloc(256)
		if err != nil {
			return err
		}
		for i, x := range []uint64{5, 3, 5, 9, 5} {
			setWord(t, w, mem+8*uint64(i), x)
		}
		out := func(which ...int) []bool {
			status := make([]bool, 5)
			for _, i := range which {
				status[i] = true
			}
			return status
		}
		const u64 = fabric.Uint64
		vector := []uint64{1, 3, 5, 7, 5}
		for _, c := range []struct {
			status []bool
			cmp    Cmp
			value  uint64
			values []uint64
			want   []int
		}{
			{nil, CmpEQ, 5, nil, []int{0, 2, 4}},
			{out(0, 2), CmpEQ, 5, nil, []int{4}},
			{out(0, 2, 4), CmpEQ, 5, nil, nil},
			{nil, CmpGE, 3, nil, []int{0, 1, 2, 3, 4}},
			{out(1, 3), CmpEQ, 5, nil, []int{0, 2, 4}},
			{out(0, 1, 2, 3, 4), CmpEQ, 5, nil, nil},
			{nil, CmpEQ, 0, vector, []int{1, 2, 4}},
			{out(0, 3), CmpEQ, 0, vector, []int{1, 2, 4}},
			{nil, CmpGT, 0, vector, []int{0, 3}},
		} {
			left := 0
			for _, x := range c.status {
				left += map[bool]int{true: 1}[x]
			}
			any, all := -1, len(c.want) == 5-left
			if len(c.want) > 0 {
				any = c.want[0]
			}
			var gotAny int
			var gotAll bool
			var gotSome, waited []int
			var errs [4]error
			if c.values == nil {
				gotAny, errs[0] = w.TestAny(mem, 5, c.status, u64, c.cmp, c.value)
				gotAll, errs[1] = w.TestAll(mem, 5, c.status, u64, c.cmp, c.value)
				gotSome, errs[2] = w.TestSome(mem, 5, c.status, u64, c.cmp, c.value)
			} else {
				gotAny, errs[0] = w.TestAnyVector(mem, 5, c.status, u64, c.cmp, c.values)
				gotAll, errs[1] = w.TestAllVector(mem, 5, c.status, u64, c.cmp, c.values)
				gotSome, errs[2] = w.TestSomeVector(mem, 5, c.status, u64, c.cmp, c.values)
			}
			if err := errors.Join(errs[:]...); err != nil || gotAny != any || gotAll != all || !slices.Equal(gotSome, c.want) {
				return fmt.Errorf("%+v: any %d, all %v, some %v, error %v", c, gotAny, gotAll, gotSome, err)
			}
			if len(c.want) == 0 && left < 5 {
				continue // that would wait
			}
			if c.values == nil {
				waited, errs[0] = w.WaitUntilSome(mem, 5, c.status, u64, c.cmp, c.value)
				gotAny, errs[1] = w.WaitUntilAny(mem, 5, c.status, u64, c.cmp, c.value)
				if all {
					errs[2] = w.WaitUntilAll(mem, 5, c.status, u64, c.cmp, c.value)
				}
			} else {
				waited, errs[0] = w.WaitUntilSomeVector(mem, 5, c.status, u64, c.cmp, c.values)
				gotAny, errs[1] = w.WaitUntilAnyVector(mem, 5, c.status, u64, c.cmp, c.values)
				if all {
					errs[2] = w.WaitUntilAllVector(mem, 5, c.status, u64, c.cmp, c.values)
				}
			}
			if err := errors.Join(errs[:]...); err != nil || gotAny != any || !slices.Equal(waited, c.want) {
				return fmt.Errorf("%+v: wait: any %d, some %v, error %v", c, gotAny, waited, err)
			}
		}
		return w.Free(mem)
	})
}

// TestWaitsAreWoken: each kind of change, by each kind of call, ends a wait.
func TestWaitsAreWoken(t *testing.T) {
	onEveryPath(t, 2, 4096, func(t *testing.T, w *World, mem uint64) error {
		own := ownMemory(t, 64)
		changes := map[string]func() error{
			"put":    func() error { return errors.Join(w.Put(mem+16, own, 8, 1), w.Quiet()) },
			"long":   func() error { return errors.Join(w.Put(mem+16, own, 40, 1), w.Quiet()) },
			"iput":   func() error { return errors.Join(w.IPut(mem+16, own, 1, 1, 2, 8, 1), w.Quiet()) },
			"atomic": func() error { return w.Atomic(AtomicAdd, 8, mem+16, 7, 1) },
			"signal": func() error { return w.SignalSet(mem+16, 7, 1) },
			"put_signal": func() error {
				return w.PutSignal(mem+64, own, 8, mem+16, 7, SignalAdd, 1)
			},
		}
		waits := map[string]func() error{
			"one":  func() error { return w.WaitUntil(mem+16, fabric.Int64, CmpEQ, 7) },
			"all":  func() error { return w.WaitUntilAll(mem+16, 1, nil, fabric.Int32, CmpGT, 0) },
			"any":  func() error { _, err := w.WaitUntilAny(mem, 20, nil, fabric.Uint8, CmpNE, 0); return err },
			"some": func() error { _, err := w.WaitUntilSome(mem, 5, nil, fabric.Uint64, CmpGE, 7); return err },
			"signal": func() error {
				seen, err := w.SignalWaitUntil(mem+16, CmpNE, 0)
				if err == nil && seen != 7 {
					err = fmt.Errorf("signal %d", seen)
				}
				return err
			},
		}
		setWord(t, w, own, 7)
		for _, change := range sortedKeys(changes) {
			for i, wait := range sortedKeys(waits) {
				setWord(t, w, mem+16, 0)
				if err := w.BarrierAll(); err != nil {
					return err
				}
				var err error
				if w.MyPE() == 1 {
					err = waits[wait]()
				} else {
					time.Sleep(time.Duration(i%3) * 200 * time.Microsecond) // the other one looks, or parks
					err = changes[change]()
				}
				if err := errors.Join(err, w.BarrierAll()); err != nil {
					return fmt.Errorf("%s ends %s: %w", change, wait, err)
				}
			}
		}
		return nil
	})
}

// TestRawStoresEndWaits: nobody rings for a store through Ptr, and yet a wait ends soon.
func TestRawStoresEndWaits(t *testing.T) {
	run(t, 2, Config{}, func(w *World) error {
		mem, err := w.Malloc(64)
		if err != nil {
			return err
		}
		if w.MyPE() == 0 {
			time.Sleep(2 * time.Millisecond) // the other one parks
			memory.Store64(w.Ptr(mem, 1), 5)
		} else if err := w.WaitUntil(mem, fabric.Uint64, CmpEQ, 5); err != nil {
			return err
		}
		return w.Free(mem)
	})
}

func sortedKeys[V any](m map[string]V) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}

func TestWaitsEnd(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		w.pes.Timeout = 50 * time.Millisecond
		mem := w.heap.Main().Base + 1024
		setWord(t, w, mem+8, ^uint64(0)-4)
		for want, wait := range map[string]func() error{
			"wait_until: wait for int64 at": func() error { return w.WaitUntil(mem+8, fabric.Int64, CmpEQ, 3) },
			"> 3, its value is -5":          func() error { return w.WaitUntil(mem+8, fabric.Int32, CmpGT, 3) },
			"number 1 == 3, its value is 251": func() error {
				return w.WaitUntilAll(mem+7, 2, []bool{true, false}, fabric.Uint8, CmpEQ, 3)
			},
			"wait_until_any":    func() error { _, err := w.WaitUntilAny(mem, 2, nil, fabric.Uint64, CmpEQ, 3); return err },
			"wait_until_some":   func() error { _, err := w.WaitUntilSome(mem, 2, nil, fabric.Uint64, CmpEQ, 3); return err },
			"signal_wait_until": func() error { _, err := w.SignalWaitUntil(mem, CmpGT, 3); return err },
		} {
			if err := wait(); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q: %v", want, err)
			}
		}
		w.pes.Timeout = 20 * time.Second
		go func() {
			time.Sleep(5 * time.Millisecond)
			w.pes.Fail(errPretended)
		}()
		if err := w.AwaitFor(0, something, func() bool { return false }); !errors.Is(err, errPretended) {
			t.Errorf("a PE died: %v", err)
		}
		return nil
	})
}

func TestBadWaits(t *testing.T) {
	run(t, 1, Config{}, func(w *World) error {
		mem, err := w.Malloc(64)
		if err != nil {
			return err
		}
		own := ownMemory(t, 64)
		const u64 = fabric.Uint64
		any := func(addr, n uint64, status []bool, typ Type, c Cmp) func() error {
			return func() error { _, err := w.WaitUntilAny(addr, n, status, typ, c, 0); return err }
		}
		err = allRefused([]refusal{
			{"comparison 0", ErrInvalid, func() error { return w.WaitUntil(mem, u64, 0, 1) }},
			{"comparison 7", ErrInvalid, func() error { _, err := w.Test(mem, u64, 7, 1); return err }},
			{"floats", ErrInvalid, func() error { return w.WaitUntil(mem, fabric.Float32, CmpEQ, 0) }},
			{"no type", ErrInvalid, func() error { return w.WaitUntil(mem, 0, CmpEQ, 0) }},
			{"type 99", ErrInvalid, func() error { return w.WaitUntil(mem, 99, CmpEQ, 0) }},
			{"between words", ErrInvalid, func() error { return w.WaitUntil(mem+4, u64, CmpEQ, 0) }},
			{"local memory", ErrNotSym, func() error { return w.WaitUntil(own, u64, CmpEQ, 0) }},
			{"nil", ErrNotSym, func() error { _, err := w.SignalWaitUntil(0, CmpEQ, 0); return err }},
			{"signal between words", ErrInvalid, func() error { _, err := w.SignalFetch(mem + 4); return err }},
			{"signal in local memory", ErrNotSym, func() error { _, err := w.SignalFetch(own); return err }},
			{"too many", ErrInvalid, any(mem, 1<<62, nil, u64, CmpEQ)},
			{"past the end", ErrNotSym, any(mem, 1<<40, nil, u64, CmpEQ)},
			{"status of fewer", ErrInvalid, any(mem, 4, make([]bool, 3), u64, CmpEQ)},
			{"values for fewer", ErrInvalid, func() error { return w.WaitUntilAllVector(mem, 2, nil, u64, CmpEQ, []uint64{0}) }},
			{"no values", ErrInvalid, func() error { _, err := w.TestAllVector(mem, 2, nil, u64, CmpEQ, nil); return err }},
		})
		i, e1 := w.WaitUntilAny(mem, 0, nil, u64, CmpEQ, 1)
		some, e2 := w.WaitUntilSome(mem, 2, []bool{true, true}, u64, CmpEQ, 1)
		e3 := w.WaitUntilAll(mem, 0, nil, u64, CmpEQ, 1)
		if i != -1 || len(some) != 0 {
			t.Errorf("of none, %d and %v compare", i, some)
		}
		return errors.Join(err, e1, e2, e3, w.Free(mem))
	})
}

func something() string { return "something" }
