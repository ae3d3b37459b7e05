// SPDX-License-Identifier: MIT

// The raw limits that mori.shmem is held against: what the machine needs at least, in C.
#pragma once
#include <stdint.h>

// Kinds of mori_raw.
enum { MORI_RAW_MEMCPY, MORI_RAW_STORE, MORI_RAW_SWAP, MORI_RAW_COMPARE_SWAP, MORI_RAW_FETCH_ADD };

// Does one thing to mapped memory rounds times in a row, and that runs times. Returns the nanoseconds of a round in the fastest run.
double mori_raw(int kind, uint64_t dest, uint64_t source, uint64_t n, int64_t rounds, int64_t runs);

enum { MORI_RAW_STEPS = 16, MORI_RAW_LINE = 64 };

// Where a process of a barrier made of flags has these: word i of its own is at own + i * MORI_RAW_LINE, and in step i it stores to
// peers[i].
typedef struct {
	uint64_t own;
	uint64_t peers[MORI_RAW_STEPS];
	int steps;
} mori_flags;

// Like mori_raw, for that barrier. Flags grow by 1 with each round, from first. -1: another process did not come within a minute.
double mori_raw_barrier(const mori_flags *f, uint64_t first, int64_t rounds, int64_t runs);
