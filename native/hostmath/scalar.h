// SPDX-License-Identifier: MIT
//
// One element of each type to and from float32, in arithmetic on the bits and without a branch, so that compilers turn
// loops of it into vector code for any unit. Everything is exact or rounded to nearest even.

#ifndef MORI_HOSTMATH_SCALAR_H
#define MORI_HOSTMATH_SCALAR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

// Elements at addresses of any alignment.
typedef float hm_float __attribute__((aligned(1), may_alias));
typedef uint16_t hm_u16 __attribute__((aligned(1), may_alias));
typedef uint8_t hm_u8 __attribute__((may_alias));
typedef int32_t hm_i32 __attribute__((aligned(1), may_alias));

enum { HM_INF = 0x7f800000, HM_NAN = 0x7fc00000, HM_ABS = 0x7fffffff };

static inline int32_t hm_bits(float f) {
	int32_t u;
	memcpy(&u, &f, sizeof u);
	return u;
}

static inline float hm_float_of(int32_t u) {
	float f;
	memcpy(&f, &u, sizeof f);
	return f;
}

// All NaNs become one. Which of two NaNs a sum hands on is the compiler's choice, and results shall not differ by it.
static inline float hm_one_nan(float f) { return (hm_bits(f) & HM_ABS) > HM_INF ? hm_float_of(HM_NAN) : f; }

static inline float hm_from_f32(float f) { return f; }

static inline float hm_from_bf16(uint16_t b) { return hm_float_of((int32_t)((uint32_t)b << 16)); }

// E4M3 has 3 bits of mantissa: below 8 the number is subnormal and counts units, above the exponent moves over by the
// difference of the biases.
static inline float hm_from_e4m3(uint8_t b, float unit, int32_t rebias) {
	int32_t a = b & 0x7f;
	int32_t small = hm_bits((float)a * unit);
	int32_t large = (a << 20) + (rebias << 23);
	return hm_float_of(a < 8 ? small : large);
}

static inline float hm_from_e4m3fn(uint8_t b) {
	int32_t v = hm_bits(hm_from_e4m3(b, 0x1p-9f, 120));
	v = (b & 0x7f) == 0x7f ? HM_NAN : v;
	return hm_float_of((int32_t)((uint32_t)v | (uint32_t)(b & 0x80) << 24));
}

static inline float hm_from_e4m3fnuz(uint8_t b) {
	int32_t v = (int32_t)((uint32_t)hm_bits(hm_from_e4m3(b, 0x1p-10f, 119)) | (uint32_t)(b & 0x80) << 24);
	return hm_float_of(b == 0x80 ? HM_NAN : v);
}

static inline float hm_to_f32(float f, int32_t over) {
	(void)over;
	return f;
}

static inline uint16_t hm_to_bf16(float f, int32_t over) {
	(void)over;
	int32_t u = hm_bits(f);
	uint32_t rounded = ((uint32_t)u + 0x7fff + ((uint32_t)u >> 16 & 1)) >> 16;
	uint32_t nan = ((uint32_t)u >> 16 & 0x8000) | 0x7fc0;
	return (uint16_t)((u & HM_ABS) > HM_INF ? nan : rounded);
}

// The magnitude in E4M3, past 0x7f where it does not fit. Subnormal results are rounded by the adder: the last place of
// magic is their unit.
static inline int32_t hm_to_e4m3(int32_t a, int32_t least, float magic, int32_t rebias) {
	int32_t small = hm_bits(hm_float_of(a) + magic) - hm_bits(magic);
	int32_t large = (int32_t)(((uint32_t)a + 0x7ffff + ((uint32_t)a >> 20 & 1)) >> 20) - (rebias << 3);
	return a < least ? small : large;
}

// What does not fit becomes over: 0x7f (NaN), or 0x7e (448) to saturate.
static inline uint8_t hm_to_e4m3fn(float f, int32_t over) {
	int32_t u = hm_bits(f), a = u & HM_ABS;
	int32_t r = hm_to_e4m3(a, 0x3c800000, 0x1p14f, 120);
	r = r > 0x7e ? over : r;
	r = a > HM_INF ? 0x7f : r;
	return (uint8_t)(r | ((uint32_t)u >> 24 & 0x80));
}

// What does not fit becomes over: 0x80 (NaN), or 0x7f (240) to saturate. There is no negative zero, and 0x80 has no sign.
static inline uint8_t hm_to_e4m3fnuz(float f, int32_t over) {
	int32_t u = hm_bits(f), a = u & HM_ABS;
	int32_t r = hm_to_e4m3(a, 0x3c000000, 0x1p13f, 119);
	r = r > 0x7f ? over : r;
	r = a > HM_INF ? 0x80 : r;
	return (uint8_t)(r == 0 ? 0 : r | (int32_t)((uint32_t)u >> 24 & 0x80));
}

#endif
