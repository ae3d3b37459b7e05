// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"mori/core/memory"
)

const mib = 1 << 20

// A measure is something that PE 0 does with the memory of PE 1, and what it is held against: the
// least that the machine needs for it.
type measure struct {
	name      string
	op, bare  func() error
	atLeast   int // rounds, for a time that can be measured
	bareNamed string
}

// measures are of PE 0, with own bytes and the symmetric ones at mem.
func measures(w *World, mem, own uint64) []measure {
	peer := w.Ptr(mem, 1)
	put := func(n uint64) func() error {
		return func() error { return errors.Join(w.Put(mem, own, n, 1), w.Quiet()) }
	}
	copied := func(dst, src, n uint64) func() error {
		return func() error { memory.Copy(dst, src, n); return nil }
	}
	fetch := func(op AtomicOp, size int) func() error {
		return func() error { _, err := w.FetchAtomic(op, size, mem, 1, 1, 1); return err }
	}
	return []measure{
		{"put 8 and quiet", put(8), copied(peer, own, 8), 5000, "copy"},
		{"put 1 MiB", put(mib), copied(peer, own, mib), 20, "copy"},
		{"get 1 MiB", func() error { return w.Get(own, mem, mib, 1) }, copied(own, peer, mib), 20, "copy"},
		{"iput 8 x 1024", func() error { return w.IPut(mem, own, 2, 2, 1024, 8, 1) }, func() error {
			return memory.MoveStrided(peer, 16, own, 16, 8, 1024)
		}, 200, "loop"},
		{"fetch_add", fetch(AtomicFetchAdd, 8), func() error { memory.Add64(peer, 1); return nil }, 5000, "instruction"},
		{"inc", func() error { return w.Atomic(AtomicInc, 8, mem, 0, 1) }, func() error { memory.Add64(peer, 1); return nil }, 5000, "instruction"},
		{"swap", fetch(AtomicSwap, 8), func() error { memory.Swap64(peer, 1); return nil }, 5000, "instruction"},
		{"compare_swap of 4", fetch(AtomicCompareSwap, 4), func() error { memory.CompareAndSwap32(peer, 1, 1); return nil }, 5000, "instruction"},
		{"set", func() error { return w.Atomic(AtomicSet, 4, mem, 1, 1) }, func() error { memory.Store32(peer, 1); return nil }, 5000, "instruction"},
		{"fetch", fetch(AtomicFetch, 8), func() error { memory.Load64(peer); return nil }, 5000, "instruction"},
	}
}

// runs is how often best measures, also in openshmem.c: on a busy machine some short runs are not
// disturbed.
const runs = 50

// best is the shortest time of a round of f among some runs of n: the machine may have other work.
func best(n int, f func() error) (time.Duration, error) {
	least := time.Duration(1 << 62)
	for range runs {
		begin := time.Now()
		for range n {
			if err := f(); err != nil {
				return 0, err
			}
		}
		least = min(least, time.Since(begin))
	}
	return least, nil
}

// BenchmarkOps reports how many times as long an op takes as the least that the machine needs for
// it.
func BenchmarkOps(b *testing.B) {
	bytes := filled(2*mib, 3)
	own := memory.AddrOf(bytes)
	run(b, 2, Config{HeapSize: 4 * mib}, func(w *World) error {
		mem, err := w.Malloc(2 * mib)
		if err != nil || w.MyPE() == 1 {
			return err
		}
		for _, m := range measures(w, mem, own) {
			b.Run(m.name, func(b *testing.B) {
				n := max(b.N, m.atLeast)
				op, err := best(n, m.op)
				bare, e := best(n, m.bare)
				if err := errors.Join(err, e); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(op.Nanoseconds())/float64(n), "ns/op")
				b.ReportMetric(float64(bare.Nanoseconds())/float64(n), "ns/"+m.bareNamed)
				b.ReportMetric(float64(op)/float64(bare), "op/"+m.bareNamed)
			})
		}
		return nil
	})
	runtime.KeepAlive(bytes)
}

func init() {
	for _, name := range []string{"put 8 and quiet", "put 1 MiB", "get 1 MiB", "fetch_add"} {
		jobs[name] = func(w *World, rounds int) (time.Duration, error) { return alone(w, name, rounds) }
	}
	jobs["best barrier"] = func(w *World, rounds int) (time.Duration, error) { return best(rounds, w.BarrierAll) }
	jobs["both fetch_add"] = func(w *World, rounds int) (time.Duration, error) {
		mem, err := w.Malloc(64)
		if err != nil {
			return 0, err
		}
		return timed(w, rounds, func() error { _, err := w.FetchAtomic(AtomicFetchAdd, 8, mem, 1, 0, 1); return err })
	}
	jobs["both add"] = func(w *World, rounds int) (time.Duration, error) {
		mem, err := w.Malloc(64)
		if err != nil {
			return 0, err
		}
		peer := w.Ptr(mem, 1)
		return timed(w, rounds, func() error { memory.Add64(peer, 1); return nil })
	}
	jobs["ping-pong"] = func(w *World, rounds int) (time.Duration, error) {
		mem, err := w.Malloc(256)
		if err != nil {
			return 0, err
		}
		i := uint64(0)
		return timed(w, rounds, func() error { i++; return ring(w, mem, i) })
	}
}

// alone is a measure in processes: PE 1 waits in a barrier. It returns the time of all rounds at
// the speed of the best of some.
func alone(w *World, name string, rounds int) (took time.Duration, err error) {
	mem, err := w.Malloc(2 * mib)
	if err != nil {
		return 0, err
	}
	clear(memory.Bytes(mem, 2*mib)) // its pages are there
	if err := w.BarrierAll(); err != nil {
		return 0, err
	}
	bytes := filled(2*mib, 3)
	for _, m := range measures(w, mem, memory.AddrOf(bytes)) {
		if m.name == name && w.MyPE() == 0 {
			took, err = best(rounds, m.op)
		}
	}
	runtime.KeepAlive(bytes)
	return took, errors.Join(err, w.BarrierAll())
}

// ring passes signal number i around all PEs, and ends with PE 0.
func ring(w *World, mem, i uint64) error {
	next := (w.MyPE() + 1) % w.NPEs()
	if w.MyPE() == 0 {
		if err := w.SignalSet(mem, i, next); err != nil {
			return err
		}
		_, err := w.SignalWaitUntil(mem, CmpGE, i)
		return err
	}
	if _, err := w.SignalWaitUntil(mem, CmpGE, i); err != nil {
		return err
	}
	return w.SignalSet(mem, i, next)
}

// BenchmarkAtomicsOfTwo reports how many times as long an atomic takes as the instruction if two
// processes do it to the same word all the time.
func BenchmarkAtomicsOfTwo(b *testing.B) {
	rounds := max(b.N, 100000)
	op, bare := time.Duration(1<<62), time.Duration(1<<62)
	for range 5 {
		op = min(op, processes(b, 2, "both fetch_add", rounds, mib))
		bare = min(bare, processes(b, 2, "both add", rounds, mib))
	}
	b.ReportMetric(float64(op.Nanoseconds())/float64(rounds), "ns/op")
	b.ReportMetric(float64(bare.Nanoseconds())/float64(rounds), "ns/instruction")
	b.ReportMetric(float64(op)/float64(bare), "op/instruction")
}

// BenchmarkSignalRing is how long a signal takes from one process to the next, also when there are
// more of them than cores.
func BenchmarkSignalRing(b *testing.B) {
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			took := processes(b, n, "ping-pong", b.N, mib)
			b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*n), "ns/signal")
			b.ReportMetric(0, "ns/op")
		})
	}
}
