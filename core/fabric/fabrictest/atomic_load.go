// SPDX-License-Identifier: MIT

package fabrictest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

var atomicLoadCases = []testCase{
	{"sums of many endpoints lose nothing", concurrentSums},
	{"sums of many endpoints lose nothing with elements of any size", sumsOfEverySize},
	{"swaps of many endpoints lose nothing", concurrentSwaps},
	{"an atomic after a fence sees earlier ops", fencedAtomics},
	{"atomics and CPU atomics do not lose updates", besideTheCPU},
}

const atomicWorkers = 8

// contenders are arenas of one region with a near endpoint each.
func (w *arena) contenders() (all []*arena) {
	w.Helper()
	for range atomicWorkers {
		c := *w
		c.a = w.a.host.node(shape{})
		w.join(c.a, w.b.host.node(shape{}))
		c.local, c.compared, c.fetched = w.alloc(64), w.alloc(64), w.alloc(64)
		all = append(all, &c)
	}
	return all
}

// contend runs work for all contenders at once.
func (w *arena) contend(work func(*arena) error) {
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
func concurrentSums(r *rig) {
	const rounds = 100
	w := r.arena(8, bothRights)
	add, fetchAdd := atomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}, atomicWord{fabric.OpFetchAtomic, fabric.AtomicSum, fabric.Uint64}
	w.needs(add)
	w.needs(fetchAdd)
	var mu sync.Mutex
	seen := make(map[uint64]bool)
	w.contend(func(c *arena) error {
		binary.LittleEndian.PutUint64(c.local.b, 1)
		for range rounds {
			if err := errors.Join(c.a.send(c.op(add, 1)), c.a.send(c.op(fetchAdd, 1))); err != nil {
				return err
			}
			got := binary.LittleEndian.Uint64(c.fetched.b)
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
	if got := sys.Load64(w.far.addr); got != 2*rounds*atomicWorkers {
		r.Fatalf("%d sums of 1 are %d", 2*rounds*atomicWorkers, got)
	}
}

// sumsOfEverySize adds ones to numbers that the CPU adds by itself, and to those that it does not.
func sumsOfEverySize(r *rig) {
	const rounds, elements = 25, 3
	w := r.arena(64, bothRights)
	for _, t := range []fabric.DataType{fabric.Uint8, fabric.Int16, fabric.Uint32, fabric.Float32, fabric.Float64, fabric.Complex64, fabric.Complex128} {
		word := atomicWord{fabric.OpAtomic, fabric.AtomicSum, t}
		if r.grants(w.a, word) < elements {
			continue
		}
		clear(w.far.b)
		w.contend(func(c *arena) error {
			for i := range elements {
				c.local.put(i*t.Size(), number(t, 1))
			}
			for range rounds {
				if err := c.a.send(c.op(word, elements)); err != nil {
					return err
				}
			}
			return nil
		})
		for i := range elements {
			if got := value(t, w.far.b[i*t.Size():(i+1)*t.Size()]); got != rounds*atomicWorkers {
				r.Fatalf("%d sums of 1 of %v are %v", rounds*atomicWorkers, t, got)
			}
		}
	}
}

// concurrentSwaps adds ones by comparing and swapping until it worked.
func concurrentSwaps(r *rig) {
	const rounds = 30
	w := r.arena(8, bothRights)
	word := atomicWord{fabric.OpCompareAtomic, fabric.AtomicCSwap, fabric.Uint64}
	w.needs(word)
	w.contend(func(c *arena) error {
		guess := uint64(0)
		for done := 0; done < rounds; {
			binary.LittleEndian.PutUint64(c.compared.b, guess)
			binary.LittleEndian.PutUint64(c.local.b, guess+1)
			if err := c.a.send(c.op(word, 1)); err != nil {
				return err
			}
			was := binary.LittleEndian.Uint64(c.fetched.b)
			if was == guess {
				done++
				was++
			}
			guess = was
		}
		return nil
	})
	if got := sys.Load64(w.far.addr); got != rounds*atomicWorkers {
		r.Fatalf("%d swaps that worked made %d", rounds*atomicWorkers, got)
	}
}

// fencedAtomics sums what a large write brings, and fetches the sum.
func fencedAtomics(r *rig) {
	const size = 1 << 20
	w := r.arena(size, bothRights)
	sum, fetch := w.needs(atomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64}), w.needs(atomicWord{fabric.OpFetchAtomic, fabric.AtomicRead, fabric.Uint64})
	src := r.alloc(size)
	last := w.to.at(size-8, 8)
	sum.Flags, sum.RSeg, sum.Ctx = fabric.OpFence, last, 2
	fetch.Flags, fetch.RSeg, fetch.Ctx = fabric.OpFence, last, 3
	for round := range uint64(20) {
		value := math.MaxUint32 * (round + 1)
		binary.LittleEndian.PutUint64(src.b[size-8:], value)
		binary.LittleEndian.PutUint64(w.local.b, 7)
		w.a.submit(fabric.Op{Kind: fabric.OpWrite, Seg: src.seg(), RSeg: w.to.at(0, size), Ctx: 1}, sum, fetch)
		for i := range uint64(3) {
			w.a.ok(i + 1)
		}
		if got := binary.LittleEndian.Uint64(w.fetched.b); got != value+7 {
			r.Fatalf("round %d: fetched %d, want %d", round, got, value+7)
		}
	}
}

// besideTheCPU has atomics of the provider and the CPU's own on two halves of one word.
func besideTheCPU(r *rig) {
	const rounds = 300
	w := r.arena(8, bothRights)
	sum := w.needs(atomicWord{fabric.OpAtomic, fabric.AtomicSum, fabric.Uint64})
	var stop atomic.Bool
	added := make(chan uint64, 1)
	go func() {
		n := uint64(0)
		for ; n < 1<<20 && !stop.Load(); n++ {
			sys.Add64(w.far.addr, 1<<32)
		}
		added <- n
	}()
	ended := sync.OnceValue(func() uint64 {
		stop.Store(true)
		return <-added
	})
	r.Cleanup(func() { ended() }) // before the memory goes
	binary.LittleEndian.PutUint64(w.local.b, 1)
	for range rounds {
		w.a.do(sum)
	}
	if n, got := ended(), sys.Load64(w.far.addr); got != n<<32+rounds {
		r.Fatalf("%d sums here and %d of the CPU are %d and %d", rounds, n, got&(1<<32-1), got>>32)
	}
}
