// SPDX-License-Identifier: MIT
//
// The text of struct hm_kernels. Who includes it has defined HM_NAME, the variant, and HM_TARGET, the attribute that
// lets the compiler use its unit. The loops are plain: gcc and clang make vector code of them, and since each does the same
// operations on each element in the same order, all variants agree bit for bit.

#include "kernels.h"
#include "scalar.h"

#define HM_LOOPS(type, elem) \
	static HM_TARGET void load_##type(float *restrict acc, const void *restrict src, size_t n) { \
		const elem *restrict s = src; \
		for (size_t i = 0; i < n; i++) \
			acc[i] = hm_from_##type(s[i]); \
	} \
	static HM_TARGET void add_##type(float *restrict acc, const void *restrict src, size_t n) { \
		const elem *restrict s = src; \
		for (size_t i = 0; i < n; i++) \
			acc[i] += hm_from_##type(s[i]); \
	} \
	static HM_TARGET void load_weighted_##type(float *restrict acc, const void *restrict src, size_t n, float w) { \
		const elem *restrict s = src; \
		for (size_t i = 0; i < n; i++) \
			acc[i] = w * hm_from_##type(s[i]); \
	} \
	static HM_TARGET void add_weighted_##type(float *restrict acc, const void *restrict src, size_t n, float w) { \
		const elem *restrict s = src; \
		for (size_t i = 0; i < n; i++) \
			acc[i] += w * hm_from_##type(s[i]); \
	} \
	static HM_TARGET void store_##type(void *restrict dst, const float *restrict acc, size_t n, int32_t over) { \
		elem *restrict d = dst; \
		for (size_t i = 0; i < n; i++) \
			d[i] = hm_to_##type(acc[i], over); \
	} \
	static HM_TARGET void store_sum_##type(void *restrict dst, const float *restrict acc, size_t n, int32_t over) { \
		elem *restrict d = dst; \
		for (size_t i = 0; i < n; i++) \
			d[i] = hm_to_##type(hm_one_nan(acc[i]), over); \
	}

HM_LOOPS(f32, hm_float)
HM_LOOPS(bf16, hm_u16)
HM_LOOPS(e4m3fn, hm_u8)
HM_LOOPS(e4m3fnuz, hm_u8)

static HM_TARGET void load_scaled(float *restrict acc, const void *restrict src, size_t n, float scale, float w) {
	const hm_u8 *restrict s = src;
	for (size_t i = 0; i < n; i++)
		acc[i] = w * (hm_from_e4m3fn(s[i]) * scale);
}

static HM_TARGET void add_scaled(float *restrict acc, const void *restrict src, size_t n, float scale, float w) {
	const hm_u8 *restrict s = src;
	for (size_t i = 0; i < n; i++)
		acc[i] += w * (hm_from_e4m3fn(s[i]) * scale);
}

// Magnitudes are in the order of their bits.
static HM_TARGET int32_t amax(const float *acc, size_t n) {
	int32_t most = 0;
	for (size_t i = 0; i < n; i++) {
		int32_t a = hm_bits(acc[i]) & HM_ABS;
		a = a < HM_INF ? a : 0;
		most = a > most ? a : most;
	}
	return most;
}

static HM_TARGET void quant(void *restrict dst, const float *restrict acc, size_t n, float scale) {
	hm_u8 *restrict d = dst;
	for (size_t i = 0; i < n; i++)
		d[i] = hm_to_e4m3fn(acc[i] / scale, 0x7f);
}

#define HM_QUOTE(name) #name
#define HM_STRING(name) HM_QUOTE(name)
#define HM_JOIN(a, b) a##b
#define HM_TABLE(name) HM_JOIN(hm_, name)
#define HM_ALL(loop) {loop##_f32, loop##_bf16, loop##_e4m3fn, loop##_e4m3fnuz}

const struct hm_kernels HM_TABLE(HM_NAME) = {
	.name = HM_STRING(HM_NAME),
	.load = HM_ALL(load),
	.add = HM_ALL(add),
	.load_weighted = HM_ALL(load_weighted),
	.add_weighted = HM_ALL(add_weighted),
	.load_scaled = load_scaled,
	.add_scaled = add_scaled,
	.store = HM_ALL(store),
	.store_sum = HM_ALL(store_sum),
	.amax = amax,
	.quant = quant,
};
