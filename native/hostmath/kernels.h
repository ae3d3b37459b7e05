// SPDX-License-Identifier: MIT
//
// The loops that exist once for each vector unit. loops.h has their text, and each variant_*.c compiles it for one unit.
// Rows are worked on in pieces of at most HM_PIECE elements, whose sums stay in the first-level cache.

#ifndef MORI_HOSTMATH_KERNELS_H
#define MORI_HOSTMATH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "hostmath.h"

enum { HM_PIECE = 512 };

struct hm_kernels {
	const char *name;
	// acc = src and acc += src, and the same with src * w.
	void (*load[HM_FLOATS])(float *acc, const void *src, size_t n);
	void (*add[HM_FLOATS])(float *acc, const void *src, size_t n);
	void (*load_weighted[HM_FLOATS])(float *acc, const void *src, size_t n, float w);
	void (*add_weighted[HM_FLOATS])(float *acc, const void *src, size_t n, float w);
	// acc = src * scale and so on, for e4m3fn in blocks; the product is rounded before it is weighted.
	void (*load_scaled)(float *acc, const void *src, size_t n, float scale, float w);
	void (*add_scaled)(float *acc, const void *src, size_t n, float scale, float w);
	// dst = acc in another type; over is what the type has for numbers that do not fit.
	void (*store[HM_FLOATS])(void *dst, const float *acc, size_t n, int32_t over);
	// dst = acc with all NaNs one.
	void (*store_sum[HM_FLOATS])(void *dst, const float *acc, size_t n, int32_t over);
	// The largest finite magnitude, as its bits.
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
