// SPDX-License-Identifier: MIT
//
// The loops that exist once for each vector unit. loops.h has their text, and each variant_*.c compiles it for one unit.
// Rows are worked on in pieces of at most HM_PIECE elements, whose float32 sums stay in the first-level cache.

#ifndef MORI_HOSTMATH_KERNELS_H
#define MORI_HOSTMATH_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hostmath.h"

#define HM_PTR(p) ((void *)(uintptr_t)(p))

enum { HM_PIECE = 1024, HM_TERMS = 32 };

// Elements at addresses of any alignment.
typedef float hm_float __attribute__((aligned(1), may_alias));
typedef int32_t hm_i32 __attribute__((aligned(1), may_alias));

enum { HM_INF = 0x7f800000, HM_NAN = 0x7fc00000, HM_ABS = 0x7fffffff };

static const uint8_t hm_size[HM_FLOATS] = {4, 2, 1, 1};

// hm_terms are the terms of a sum: m rows, with a factor each where there are weights, and another where there are scales.
struct hm_terms {
	size_t m; // at least 1
	const uint8_t *row[HM_TERMS];
	float weight[HM_TERMS];
	float scale[HM_TERMS];
};

struct hm_kernels {
	const char *name;
	// acc = the sum of the terms' elements from .. from+n, [type][weighted]; with keep, acc is the first term. Products are
	// rounded before they are added.
	void (*sum[HM_FLOATS][2])(float *acc, const struct hm_terms *terms, size_t from, size_t n, int keep);
	// The same for e4m3fn with scales; the product of element and scale is rounded before it is weighted.
	void (*sum_scaled[2])(float *acc, const struct hm_terms *terms, size_t from, size_t n, int keep);
	// dst = acc in another type; over is what the type has for numbers that do not fit. [type][1] makes all NaNs one.
	void (*store[HM_FLOATS][2])(void *dst, const float *acc, size_t n, int32_t over);
	// The bits of the largest finite magnitude.
	int32_t (*amax)(const float *acc, size_t n);
	// dst = acc / scale in e4m3fn.
	void (*quant)(void *dst, const float *acc, size_t n, float scale);
};

extern const struct hm_kernels hm_portable;
#ifdef __x86_64__
extern const struct hm_kernels hm_avx2, hm_avx512;
#endif

const struct hm_kernels *hm_kernels_in_use(void);

#endif
