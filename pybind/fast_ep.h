// SPDX-License-Identifier: MIT

// Shared by ep.go and fast_ep.c.
#pragma once
#include "fast_shmem.h"

// Flags of a call of mori.ops; or-ed together.
enum {
	MORI_EP_SEND = 1,         // send only; a later recv completes the call
	MORI_EP_COUNT = 2,        // fill the local expert count when rows have arrived
	MORI_EP_ROUTE = 4,        // use the routing map of an earlier dispatch
	MORI_EP_IN_PLACE = 8,     // the rows are in the op's own buffer
	MORI_EP_WEIGHTED = 16,    // combine applies the weights
	MORI_EP_HAS_WEIGHTS = 32, // combine also sends weights
};

// The arguments of a call of mori.ops: addresses, or 0. n is tokens for dispatch and rows for
// combine.
typedef struct {
	uint64_t input, indices, weights, scales, slots;
	int64_t n, hidden, dtype;
	int64_t route_n, route_rows;
	int64_t flags;
	uint64_t stream;       // on a GPU; there, route_rows is the address of the row count
	int64_t blocks, warps; // launch shape; 0 or less: choose one
} mori_ep_call;
