// SPDX-License-Identifier: MIT
//
// Vectors of HM_LANES elements, and the element types to and from float32 in them. Who includes it has defined HM_LANES and
// HM_TARGET, the attribute that lets the compiler use its unit, and HM_HALVES if the unit converts half floats; afterwards it
// defines the moves between widths that are declared here. Everything else is said once for all units, in the vector
// extensions that gcc and clang share: of plain loops, gcc 12 leaves those with float8 in them scalar.
//
// There is no branch on an element, and everything is exact or rounded to nearest even.

#include "kernels.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#define HM_INLINE static inline __attribute__((always_inline)) HM_TARGET

// Vectors that are summed at a time.
#define HM_STRIP 4

typedef float vf __attribute__((vector_size(4 * HM_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * HM_LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * HM_LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * HM_LANES)));

// HM_LANES numbers of 8 or 16 bits from and to memory; what is narrowed fits.
#ifdef HM_HALVES
HM_INLINE vh widen8(const void *p);
HM_INLINE vf from_half(vh h);
#else
HM_INLINE vi widen8(const void *p);
#endif
HM_INLINE vi widen16(const void *p);
HM_INLINE void narrow8(void *p, vi v);
HM_INLINE void narrow16(void *p, vi v);

HM_INLINE vf load(const void *p) {
	vf v;
	memcpy(&v, p, sizeof v);
	return v;
}

HM_INLINE void store(void *p, vf v) { memcpy(p, &v, sizeof v); }

// a where m is -1, b where it is 0.
HM_INLINE vi pick(vi m, vi a, vi b) { return b ^ ((a ^ b) & m); }

HM_INLINE vi all(int32_t x) { return x - (vi){0}; }

// All NaNs become one. Which of two NaNs a sum hands on is the compiler's choice, and results shall not differ by it.
HM_INLINE vf one_nan(vf f) { return (vf)pick(((vi)f & HM_ABS) > HM_INF, all(HM_NAN), (vi)f); }

// E4M3 has 3 bits of mantissa, and numbers below 8 are subnormal: they count units.
#ifdef HM_HALVES

// In a half float the same bits are a number of another bias, subnormal where they are here. The unit that converts halves
// then does the work. NaN is made the half's.
HM_INLINE vf from_e4m3fn(const void *p) {
	vh b = widen8(p);
	vh h = (b & 0x7f) << 7 | (b & 0x80) << 8;
	return from_half(h ^ ((vh)((b & 0x7f) == 0x7f) & (0x3f80 ^ 0x7e00))) * 0x1p8f;
}

HM_INLINE vf from_e4m3fnuz(const void *p) {
	vh b = widen8(p);
	vh h = (b & 0x7f) << 7 | (b & 0x80) << 8;
	return from_half(h ^ ((vh)(b == 0x80) & (0x8000 ^ 0x7e00))) * 0x1p7f;
}

#else

// Above the subnormals the exponent moves over by the difference of the biases.
HM_INLINE vi from_e4m3(vi a, float unit, int32_t rebias) {
	vi small = (vi)(__builtin_convertvector(a, vf) * unit);
	vi large = (a << 20) + (rebias << 23);
	return pick(a < 8, small, large);
}

HM_INLINE vf from_e4m3fn(const void *p) {
	vi b = widen8(p), a = b & 0x7f;
	vi v = pick(a == 0x7f, all(HM_NAN), from_e4m3(a, 0x1p-9f, 120));
	return (vf)((vu)v | (vu)(b & 0x80) << 24);
}

HM_INLINE vf from_e4m3fnuz(const void *p) {
	vi b = widen8(p);
	vi v = (vi)((vu)from_e4m3(b & 0x7f, 0x1p-10f, 119) | (vu)(b & 0x80) << 24);
	return (vf)pick(b == 0x80, all(HM_NAN), v);
}

#endif

HM_INLINE vi to_bf16(vf f) {
	vu u = (vu)f;
	vu rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
	vu nan = (u >> 16 & 0x8000) | 0x7fc0;
	return pick(((vi)f & HM_ABS) > HM_INF, (vi)nan, (vi)rounded);
}

// The code of the magnitude with the bits a, past 0x7f where it does not fit. Subnormal results are rounded by the adder: the
// last place of magic is their unit.
HM_INLINE vi to_e4m3(vi a, int32_t least, float magic, int32_t rebias) {
	vi small = (vi)((vf)a + magic) - (vi)(magic - (vf){0});
	vi large = (vi)(((vu)a + 0x7ffff + ((vu)a >> 20 & 1)) >> 20) - (rebias << 3);
	return pick(a < least, small, large);
}

// What does not fit becomes over: 0x7f (NaN), or 0x7e (448) to saturate.
HM_INLINE vi to_e4m3fn(vf f, int32_t over) {
	vi a = (vi)f & HM_ABS;
	vi r = to_e4m3(a, 0x3c800000, 0x1p14f, 120);
	r = pick(r > 0x7e, all(over), r);
	r = pick(a > HM_INF, all(0x7f), r);
	return r | (vi)((vu)f >> 24 & 0x80);
}

// What does not fit becomes over: 0x80 (NaN), or 0x7f (240) to saturate. There is no negative zero, and 0x80 has no sign.
HM_INLINE vi to_e4m3fnuz(vf f, int32_t over) {
	vi a = (vi)f & HM_ABS;
	vi r = to_e4m3(a, 0x3c000000, 0x1p13f, 119);
	r = pick(r > 0x7f, all(over), r);
	r = pick(a > HM_INF, all(0x80), r);
	return (r | (vi)((vu)f >> 24 & 0x80)) & (r != 0);
}

// HM_LANES elements of a type, which is a constant wherever these are called.
HM_INLINE vf get(int type, const void *p) {
	switch (type) {
	case HM_F32:
		return load(p);
	case HM_BF16:
		return (vf)(widen16(p) << 16);
	case HM_E4M3FN:
		return from_e4m3fn(p);
	default:
		return from_e4m3fnuz(p);
	}
}

HM_INLINE void put(int type, void *p, vf f, int32_t over) {
	switch (type) {
	case HM_F32:
		store(p, f);
		return;
	case HM_BF16:
		narrow16(p, to_bf16(f));
		return;
	case HM_E4M3FN:
		narrow8(p, to_e4m3fn(f, over));
		return;
	default:
		narrow8(p, to_e4m3fnuz(f, over));
	}
}
