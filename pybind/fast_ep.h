// SPDX-License-Identifier: MIT

// What ep.go and fast_ep.c share.
#pragma once
#include "fast_shmem.h"

// How a call of mori.ops is meant; or-ed together.
enum {
	MORI_EP_SEND = 1,         // begin only
	MORI_EP_COUNT = 2,        // fill the local expert count when rows have come
	MORI_EP_ROUTE = 4,        // as the dispatch of the routing map
	MORI_EP_IN_PLACE = 8,     // the rows lie in the op's own buffer
	MORI_EP_WEIGHTED = 16,    // combine applies the weights
	MORI_EP_HAS_WEIGHTS = 32, // weights travel with combine's rows
};

// What a call of mori.ops names: addresses, or 0. n is tokens for dispatch and rows for combine.
typedef struct {
	uint64_t input, indices, weights, scales, slots;
	int64_t n, hidden, dtype;
	int64_t route_n, route_rows;
	int64_t flags;
	uint64_t stream;       // on a GPU; there, route_rows is where the rows are counted
	int64_t blocks, warps; // of a launch; not above 0: any
} mori_ep_call;
