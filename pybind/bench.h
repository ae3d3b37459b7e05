// SPDX-License-Identifier: MIT

// The baselines of mori bench shmem in C: memcpy, atomic instructions and a barrier of flags.
#pragma once
#include <stdint.h>

// The kinds of mori_bench_raw.
enum { MORI_RAW_MEMCPY, MORI_RAW_STORE, MORI_RAW_SWAP, MORI_RAW_COMPARE_SWAP, MORI_RAW_FETCH_ADD };

// Performs one operation on mapped memory `rounds` times, and repeats that `runs` times. Returns
// the nanoseconds of one operation in the fastest run.
double mori_bench_raw(int kind, uint64_t dest, uint64_t source, uint64_t n, int64_t rounds, int64_t runs);

enum { MORI_RAW_STEPS = 16, MORI_RAW_LINE = 64 };

// The flags of one process in the barrier: in step i it stores to peers[i] and spins on
// own + i * MORI_RAW_LINE.
typedef struct {
	uint64_t own;
	uint64_t peers[MORI_RAW_STEPS];
	int steps;
} mori_flags;

// Measures the barrier like mori_bench_raw. The flags start at `first` and grow by 1 each round.
// Returns -1 if another process does not arrive within a minute.
double mori_bench_barrier(const mori_flags *f, uint64_t first, int64_t rounds, int64_t runs);
