// SPDX-License-Identifier: MIT
//
// The loops for what every machine of this kind has: SSE2, NEON.

#define HM_NAME portable
#define HM_LANES 4
#define HM_TARGET

#include "vector.h"

typedef uint8_t vb __attribute__((vector_size(HM_LANES)));

HM_INLINE vi widen8(const void *p) {
	vb v;
	memcpy(&v, p, sizeof v);
	return __builtin_convertvector(v, vi);
}

HM_INLINE vi widen16(const void *p) {
	vh v;
	memcpy(&v, p, sizeof v);
	return __builtin_convertvector(v, vi);
}

HM_INLINE void narrow8(void *p, vi v) {
	vb b = __builtin_convertvector(v, vb);
	memcpy(p, &b, sizeof b);
}

HM_INLINE void narrow16(void *p, vi v) {
	vh h = __builtin_convertvector(v, vh);
	memcpy(p, &h, sizeof h);
}

#include "loops.h"
