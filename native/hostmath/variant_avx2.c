// SPDX-License-Identifier: MIT

#ifdef __x86_64__

#include <immintrin.h>

#define HM_NAME avx2
#define HM_LANES 8
#define HM_TARGET __attribute__((target("avx2,f16c")))
#define HM_HALVES

#include "vector.h"

HM_INLINE vh widen8(const void *p) { return (vh)_mm_cvtepu8_epi16(_mm_loadl_epi64(p)); }

HM_INLINE vf from_half(vh h) { return (vf)_mm256_cvtph_ps((__m128i)h); }

HM_INLINE vi widen16(const void *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(p)); }

// The packs work within each half of 128 bits.
HM_INLINE __m128i pack16(vi v) {
	__m256i halves = _mm256_packus_epi32((__m256i)v, (__m256i)v);
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(halves, 0x08));
}

HM_INLINE void narrow16(void *p, vi v) { _mm_storeu_si128(p, pack16(v)); }

HM_INLINE void narrow8(void *p, vi v) {
	__m128i h = pack16(v);
	_mm_storel_epi64(p, _mm_packus_epi16(h, h));
}

#include "loops.h"

#endif
