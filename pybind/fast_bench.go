// SPDX-License-Identifier: MIT

package pybind

// #include "fast_bench.h"
import "C"

import (
	"fmt"

	"mori/shmem"
)

var rawKinds = map[string]C.int{
	"memcpy":       C.MORI_RAW_MEMCPY,
	"store":        C.MORI_RAW_STORE,
	"swap":         C.MORI_RAW_SWAP,
	"compare_swap": C.MORI_RAW_COMPARE_SWAP,
	"fetch_add":    C.MORI_RAW_FETCH_ADD,
}

// BenchRaw does to PE target's copy of the symmetric address dest what BenchShmem does, by an instruction or memcpy on the mapping: memcpy (n bytes from
// source), memcpy_from (the other way), store, swap, compare_swap, fetch_add. It returns the nanoseconds of a round in the fastest run.
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
	return float64(C.mori_raw(kind, C.uint64_t(at), C.uint64_t(source), C.uint64_t(n), C.int64_t(rounds), C.int64_t(runs))), nil
}

// BenchRawBarrier is a barrier of all PEs, which all call, made of flags alone: each PE stores into a word of another and spins on its own,
// once for each doubling of the number of PEs. Flags are 16 lines of 64 symmetric bytes; first is above all that they have been. It
// returns the nanoseconds of a barrier in the fastest run.
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
	took := float64(C.mori_raw_barrier(&f, C.uint64_t(first), C.int64_t(rounds), C.int64_t(runs)))
	if took < 0 {
		return 0, fmt.Errorf("measure flags: %w", shmem.ErrTimeout)
	}
	return took, nil
}
