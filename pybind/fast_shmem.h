// SPDX-License-Identifier: MIT

// Shared by fast_shmem.go and the C files of mori.shmem.
#pragma once
#include <stdint.h>

#include "fast.h"

enum { MORI_FAILED = -4 };

// The result of a hot call of mori.shmem: a value, or with MORI_FAILED the text "E_CODE|message",
// which C frees.
typedef struct {
	uint64_t value;
	char *error;
} mori_reply;

// Kinds of moriShmemMove, of moriShmemStrided (PUT, GET) and of moriShmemPutSignal (PUT, PUT_NBI).
enum { MORI_PUT, MORI_GET, MORI_PUT_NBI, MORI_GET_NBI };

// Kinds of moriShmemOrder.
enum { MORI_FENCE, MORI_QUIET, MORI_BARRIER_ALL, MORI_SYNC_ALL };

// Kinds of moriShmemWait: which of the elements must match, and whether the call waits or only
// tests.
enum { MORI_WAIT_ONE, MORI_WAIT_ALL, MORI_WAIT_ANY, MORI_WAIT_SOME, MORI_WAIT_WHICH = 3, MORI_TEST = 4, MORI_VECTOR = 8 };

// Kinds of moriShmemTeam.
enum { MORI_SYNC, MORI_BARRIER, MORI_BROADCAST, MORI_FCOLLECT, MORI_COLLECT, MORI_ALLTOALL, MORI_ALLTOALLS, MORI_REDUCE };

// The words and the condition of moriShmemWait.
typedef struct {
	uint64_t addr, nelems;
	const uint8_t *skip;    // per element: 1 skips it; NULL: skip none
	const uint64_t *values; // one value, or with MORI_VECTOR one per element
	uint64_t *hits;         // MORI_WAIT_SOME: room for nelems indices
	int type, cmp;
} mori_wait;

// The arguments of moriShmemTeam. Sizes are in bytes, except that MORI_ALLTOALLS and MORI_REDUCE
// count elements.
typedef struct {
	uint64_t dest, source, n;
	int64_t dest_stride, source_stride;
	int64_t root;
	int op, type, size;
} mori_collective;

// Asks Python whether the waiting call may continue. Not 0: a signal handler raised.
int mori_ask_python(void);
