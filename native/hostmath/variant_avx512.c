// SPDX-License-Identifier: MIT

#ifdef __x86_64__

#include <immintrin.h>

#define HM_NAME avx512
#define HM_LANES 16
#define HM_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define HM_HALVES

#include "vector.h"

HM_INLINE vh widen8(const void *p) { return (vh)_mm256_cvtepu8_epi16(_mm_loadu_si128(p)); }

HM_INLINE vf from_half(vh h) { return (vf)_mm512_cvtph_ps((__m256i)h); }

HM_INLINE vi widen16(const void *p) { return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)); }

HM_INLINE void narrow8(void *p, vi v) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8((__m512i)v)); }

HM_INLINE void narrow16(void *p, vi v) { _mm256_storeu_si256(p, _mm512_cvtepi32_epi16((__m512i)v)); }

#include "loops.h"

#endif
