// SPDX-License-Identifier: MIT

package pybind

// This file and bench.c hold the entry points that only mori bench calls.

// #include "bench.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"mori/core"
	"mori/core/device"
	"mori/core/fabric"
	"mori/core/interchange"
	"mori/core/memory"
	"mori/shmem"
)

const (
	benchPutsTime   = 2 * time.Minute // bounds BenchPuts
	benchSignalTime = time.Minute     // bounds BenchSignal
)

// benchMediums names each medium that carries a provider's bytes.
var benchMediums = map[fabric.Medium]string{
	fabric.MediumMemory: "memory",
	fabric.MediumGPU:    "gpu",
	fabric.MediumNIC:    "nic",
	fabric.MediumSocket: "socket",
}

// BenchProviders returns the name and the medium of each registered provider as JSON, preferred
// providers first.
func BenchProviders() (text string, err error) {
	defer guard(&err)
	var all []map[string]string
	for _, r := range core.Registrations() {
		all = append(all, map[string]string{"name": r.Name, "medium": benchMediums[r.Medium]})
	}
	return toJSON(all)
}

// BenchPuts makes threads of a GPU or of the CPU put nbytes into the memory of another device,
// count times, and compares every byte that arrived. path is "stores", "proxy:shm", "proxy:tcp" or
// "emu0"; source and target are "cuda:0", "hip:0" or "cpu". If each is set, a thread waits for
// every put. If host is set, the host posts. BenchPuts returns the nanoseconds of the run divided
// by count.
func BenchPuts(path string, source string, target string, nbytes uint64, count uint64, blocks int, threads int, each bool, host bool) (ns float64, err error) {
	defer guard(&err)
	if blocks < 1 || threads < 1 || blocks > 1<<16 || threads > 1<<10 {
		return 0, fmt.Errorf("puts by %d blocks of %d threads: %w", blocks, threads, fabric.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), benchPutsTime)
	defer cancel()
	took, err := interchange.Measure(ctx, interchange.Puts{Path: path, GPUs: [2]string{source, target}, Bytes: nbytes, Count: count,
		Blocks: uint32(blocks), Threads: uint32(threads), Each: each, Host: host})
	return float64(took) / float64(count), err
}

// A benchRun is one run: consecutive rounds of an operation.
type benchRun struct {
	dest, source, n uint64
	target, rounds  int
	first           uint64 // rounds of earlier runs
}

// benchOps has the operations of BenchShmem. Each has its own loop, because a call through a
// function value would distort operations that take nanoseconds.
var benchOps = map[string]func(p *pe, t benchRun) error{
	"put": func(p *pe, t benchRun) error {
		for range t.rounds {
			if err := p.Put(t.dest, t.source, t.n, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"put_quiet": func(p *pe, t benchRun) error {
		for range t.rounds {
			if err := p.Put(t.dest, t.source, t.n, t.target); err != nil {
				return err
			}
			if err := p.Quiet(); err != nil {
				return err
			}
		}
		return nil
	},
	"get": func(p *pe, t benchRun) error {
		for range t.rounds {
			if err := p.Get(t.source, t.dest, t.n, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"swap": func(p *pe, t benchRun) error {
		for i := range t.rounds {
			if _, err := p.FetchAtomic(shmem.AtomicSwap, 8, t.dest, t.first+uint64(i)+1, 0, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"compare_swap": func(p *pe, t benchRun) error {
		for i := range t.rounds {
			old := t.first + uint64(i)
			if _, err := p.FetchAtomic(shmem.AtomicCompareSwap, 8, t.dest, old+1, old, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"fetch_add": func(p *pe, t benchRun) error {
		for range t.rounds {
			if _, err := p.FetchAtomic(shmem.AtomicFetchAdd, 8, t.dest, 1, 0, t.target); err != nil {
				return err
			}
		}
		return nil
	},
	"barrier": func(p *pe, t benchRun) error {
		for range t.rounds {
			if err := p.BarrierAll(); err != nil {
				return err
			}
		}
		return nil
	},
}

// BenchShmem performs an operation rounds times without Python in between, and repeats that runs
// times. It returns the nanoseconds of one operation in the fastest run. The operations are:
//
//   - put, put_quiet: n bytes from source to the symmetric dest of PE target; get: the reverse
//   - fetch_add, swap, compare_swap: on the word at dest, which counts the rounds and starts at 0
//   - barrier: of all PEs, each of which calls BenchShmem
func BenchShmem(what string, dest uint64, source uint64, n uint64, target int, rounds int, runs int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	op, ok := benchOps[what]
	if !ok || rounds < 1 || runs < 1 {
		return 0, fmt.Errorf("measure %q, %d rounds %d times: %w", what, rounds, runs, shmem.ErrInvalid)
	}
	t, best := benchRun{dest: dest, source: source, n: n, target: target, rounds: rounds}, math.Inf(1)
	for range runs {
		begin := time.Now()
		if err := op(p, t); err != nil {
			return 0, err
		}
		best = min(best, float64(time.Since(begin).Nanoseconds())/float64(rounds))
		t.first += uint64(rounds)
	}
	return best, nil
}

var rawKinds = map[string]C.int{
	"memcpy":       C.MORI_RAW_MEMCPY,
	"store":        C.MORI_RAW_STORE,
	"swap":         C.MORI_RAW_SWAP,
	"compare_swap": C.MORI_RAW_COMPARE_SWAP,
	"fetch_add":    C.MORI_RAW_FETCH_ADD,
}

// BenchRaw is the baseline for BenchShmem: memcpy or an atomic instruction on PE target's mapped
// copy of dest. what is memcpy (n bytes from source), memcpy_from (the reverse), store, swap,
// compare_swap or fetch_add. BenchRaw returns the nanoseconds of one operation in the fastest run.
func BenchRaw(what string, dest uint64, source uint64, n uint64, target int, rounds int, runs int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	at := p.Ptr(dest, target)
	if at == 0 {
		return 0, fmt.Errorf("measure %s: the memory of PE %d is not mapped: %w", what, target, shmem.ErrInvalid)
	}
	if what == "memcpy_from" {
		what, at, source = "memcpy", source, at
	}
	kind, ok := rawKinds[what]
	if !ok || rounds < 1 || runs < 1 {
		return 0, fmt.Errorf("measure %q, %d rounds %d times: %w", what, rounds, runs, shmem.ErrInvalid)
	}
	return float64(C.mori_bench_raw(kind, C.uint64_t(at), C.uint64_t(source), C.uint64_t(n), C.int64_t(rounds), C.int64_t(runs))), nil
}

// BenchRawBarrier measures a dissemination barrier that uses only flags: in each step a PE stores
// into a flag of another PE and spins on its own. All PEs must call it. flags are 16 lines of 64
// symmetric bytes; first must be greater than all values that the flags have held. BenchRawBarrier
// returns the nanoseconds of one barrier in the fastest run.
func BenchRawBarrier(flags uint64, first uint64, rounds int, runs int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	f := C.mori_flags{own: C.uint64_t(flags)}
	for reach := 1; reach < p.NPEs(); reach *= 2 {
		next := (p.MyPE() + reach) % p.NPEs()
		at := p.Ptr(flags, next)
		if at == 0 || f.steps == C.MORI_RAW_STEPS {
			return 0, fmt.Errorf("measure flags: the memory of PE %d of %d is not mapped: %w", next, p.NPEs(), shmem.ErrInvalid)
		}
		f.peers[f.steps] = C.uint64_t(at) + C.uint64_t(f.steps)*C.MORI_RAW_LINE
		f.steps++
	}
	if rounds < 1 || runs < 1 {
		return 0, fmt.Errorf("measure flags, %d rounds %d times: %w", rounds, runs, shmem.ErrInvalid)
	}
	took := float64(C.mori_bench_barrier(&f, C.uint64_t(first), C.int64_t(rounds), C.int64_t(runs)))
	if took < 0 {
		return 0, fmt.Errorf("measure flags: %w", shmem.ErrTimeout)
	}
	return took, nil
}

// BenchSignal measures signals between kernels: the kernels of PEs 0 and 1 put 8 bytes with a
// signal and answer each other, rounds times. Both PEs must call it at the same time. words are 384
// symmetric bytes whose last 128 begin with the signal; first is the number of rounds made with
// them before. BenchSignal returns the nanoseconds of one way. Afterwards the signal is greater by
// rounds+1.
func BenchSignal(gpu int, words uint64, first uint64, rounds int) (ns float64, err error) {
	defer guard(&err)
	p, err := current()
	if err != nil {
		return 0, err
	}
	d, err := gpuAt(gpu)
	if err != nil {
		return 0, err
	}
	if p.MyPE() > 1 || p.NPEs() < 2 || rounds < 1 {
		return 0, fmt.Errorf("measure signals, PE %d of %d, %d rounds: %w", p.MyPE(), p.NPEs(), rounds, shmem.ErrInvalid)
	}
	m, err := d.LoadKernels("shmem_signal_rounds")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if _, err := p.ModuleInit(m.Handle()); err != nil {
		return 0, err
	}
	return signalRounds(d, m, words, first, rounds)
}

// signalRounds runs the kernel of BenchSignal and reads its two results: clock ticks in nanoseconds
// and the number of signals that overtook their data.
func signalRounds(d *device.Device, m *device.Module, words, first uint64, rounds int) (ns float64, err error) {
	f, err := m.Function("mori_shmem_signal_rounds")
	if err != nil {
		return 0, err
	}
	s, err := d.NewStream(device.Normal)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	result, err := d.AllocHost(16)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, result.Close()) }()
	var args device.Args
	args.Uint64(words).Uint64(first).Uint64(uint64(rounds)).Uint64(result.DeviceAddr())
	if err := f.Launch(s, device.Grid{Threads: [3]uint32{32}}, &args); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), benchSignalTime)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		return 0, err
	}
	out := memory.Slice[uint64](result.Addr(), 2)
	if wrong := out[1]; wrong != 0 {
		return 0, fmt.Errorf("%d of %d signals arrived before their data", wrong, rounds+1)
	}
	return float64(out[0]) / float64(rounds) / 2, nil
}

// BenchKeepRows makes combine keep the number of received rows if on is set. Then a benchmark can
// combine the rows of one dispatch repeatedly.
func BenchKeepRows(op uint64, on bool) (n int, err error) {
	defer guard(&err)
	o, err := enterOp(op)
	if err != nil {
		return 0, err
	}
	defer o.exit()
	o.KeepRows(on)
	return 0, nil
}
