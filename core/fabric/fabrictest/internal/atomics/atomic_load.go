// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/fabrictest/internal/rig"
	"mori/core/internal/sys"
)

// LoadCases are the cases of atomics of many endpoints at once.
var LoadCases = []rig.Case{
	{Name: "sums of many endpoints lose nothing", Run: concurrentSums},
	{Name: "sums of many endpoints lose nothing with elements of any size", Run: sumsOfEverySize},
	{Name: "swaps of many endpoints lose nothing", Run: concurrentSwaps},
	{Name: "an atomic after a fence sees earlier ops", Run: fencedAtomics},
	{Name: "atomics and CPU atomics do not lose updates", Run: besideTheCPU},
}

const atomicWorkers = 8

// contenders are arenas of one region with a near endpoint each.
func (w *Arena) contenders() (all []*Arena) {
	w.Helper()
	for range atomicWorkers {
		c := *w
		c.A = w.A.Host.Node(rig.Shape{})
		w.Join(c.A, w.b.Host.Node(rig.Shape{}))
		c.Local, c.compared, c.Fetched = w.Alloc(64), w.Alloc(64), w.Alloc(64)
		all = append(all, &c)
	}
	return all
}

// contend runs work for all contenders at once.
func (w *Arena) contend(work func(*Arena) error) {
	w.Helper()
	all := w.contenders()
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := work(c); err != nil {
				w.Errorf("endpoint %d: %v", i, err)
			}
		}()
	}
	wg.Wait()
}

// concurrentSums adds ones, and gives every second sum back a value that nobody else gets.
func concurrentSums(r *rig.Rig) {
	const rounds = 100
	w := NewArena(r, 8, rig.BothRights)
	add, fetchAdd := AtomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, AtomicWord{fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint64}
	w.Needs(add)
	w.Needs(fetchAdd)
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	w.contend(func(c *Arena) error {
		binary.LittleEndian.PutUint64(c.Local.B, 1)
		for range rounds {
			if err := errors.Join(c.A.Send(c.op(add, 1)), c.A.Send(c.op(fetchAdd, 1))); err != nil {
				return err
			}
			got := binary.LittleEndian.Uint64(c.Fetched.B)
			mu.Lock()
			again := seen[got]
			seen[got] = true
			mu.Unlock()
			if again {
				return fmt.Errorf("two fetched %d", got)
			}
		}
		return nil
	})
	if got := sys.Load64(w.far.Addr); got != 2*rounds*atomicWorkers {
		r.Fatalf("%d sums of 1 are %d", 2*rounds*atomicWorkers, got)
	}
}

// sumsOfEverySize adds ones to numbers that the CPU adds by itself, and to those that it does not.
func sumsOfEverySize(r *rig.Rig) {
	const rounds, elements = 25, 3
	w := NewArena(r, 64, rig.BothRights)
	for _, t := range []fabric.DataType{fabric.Uint8, fabric.Int16, fabric.Uint32, fabric.Float32, fabric.Float64, fabric.Complex64, fabric.Complex128} {
		word := AtomicWord{fabric.OpAtomic, fabric.AtomicSum, t}
		if MostAtomics(r, w.A, word) < elements {
			continue
		}
		clear(w.far.B)
		w.contend(func(c *Arena) error {
			for i := range elements {
				put(c.Local, i*t.Size(), number(t, 1))
			}
			for range rounds {
				if err := c.A.Send(c.op(word, elements)); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range elements {
			if got := value(t, w.far.B[i*t.Size():(i+1)*t.Size()]); got != rounds*atomicWorkers {
				r.Fatalf("%d sums of 1 of %v are %v", rounds*atomicWorkers, t, got)
			}
		}
	}
}

// concurrentSwaps adds ones by comparing and swapping until it worked.
func concurrentSwaps(r *rig.Rig) {
	const rounds = 30
	w := NewArena(r, 8, rig.BothRights)
	word := AtomicWord{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Uint64}
	w.Needs(word)
	w.contend(func(c *Arena) error {
		guess := uint64(0)
		for done := 0; done < rounds; {
			binary.LittleEndian.PutUint64(c.compared.B, guess)
			binary.LittleEndian.PutUint64(c.Local.B, guess+1)
			if err := c.A.Send(c.op(word, 1)); err != nil {
				return err
			}
			was := binary.LittleEndian.Uint64(c.Fetched.B)
			if was == guess {
				done++
				was++
			}
			guess = was
		}
		return nil
	})
	if got := sys.Load64(w.far.Addr); got != rounds*atomicWorkers {
		r.Fatalf("%d swaps that worked made %d", rounds*atomicWorkers, got)
	}
}

// fencedAtomics sums what a large write brings, and fetches the sum.
func fencedAtomics(r *rig.Rig) {
	const size = 1 << 20
	w := NewArena(r, size, rig.BothRights)
	sum, fetch := w.Needs(AtomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}), w.Needs(AtomicWord{fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Uint64})
	src := r.Alloc(size)
	last := w.To.At(size-8, 8)
	sum.Flags, sum.RSeg, sum.Ctx = fabric.OpFence, last, 2
	fetch.Flags, fetch.RSeg, fetch.Ctx = fabric.OpFence, last, 3
	for round := range uint64(20) {
		value := math.MaxUint32 * (round + 1)
		binary.LittleEndian.PutUint64(src.B[size-8:], value)
		binary.LittleEndian.PutUint64(w.Local.B, 7)
		w.A.Submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.Seg(), RSeg: w.To.At(0, size), Ctx: 1}, sum, fetch)
		for i := range uint64(3) {
			w.A.OK(i + 1)
		}
		if got := binary.LittleEndian.Uint64(w.Fetched.B); got != value+7 {
			r.Fatalf("round %d: fetched %d, want %d", round, got, value+7)
		}
	}
}

// besideTheCPU has atomics of the provider and the CPU's own on two halves of one word.
func besideTheCPU(r *rig.Rig) {
	const rounds = 300
	w := NewArena(r, 8, rig.BothRights)
	sum := w.Needs(AtomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64})
	var stop atomic.Bool
	added := make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for ; n < 1<<20 && !stop.Load(); n++ {
			sys.Add64(w.far.Addr, 1<<32)
		}
		added <- n
	}()
	ended := sync.OnceValue(func() uint64 {
		stop.Store(true)
		return <-added
	})
	r.Cleanup(func() { ended() }) // before the memory goes
	binary.LittleEndian.PutUint64(w.Local.B, 1)
	for range rounds {
		w.A.Do(sum)
	}
	if n, got := ended(), sys.Load64(w.far.Addr); got != n<<32+rounds {
		r.Fatalf("%d sums here and %d of the CPU are %d and %d", rounds, n, got&(1<<32-1), got>>32)
	}
}
