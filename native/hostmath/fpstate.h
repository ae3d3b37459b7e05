// SPDX-License-Identifier: MIT
//
// The state of the floating point unit that changes results: rounding, and subnormals taken as zero. Libraries built with
// -ffast-math set the latter for the thread that loads them, and torch.set_flush_denormal does.

#ifndef MORI_HOSTMATH_FPSTATE_H
#define MORI_HOSTMATH_FPSTATE_H

#include <stdint.h>

#if defined(__x86_64__)

#include <xmmintrin.h>

// All exceptions masked, round to nearest, subnormals kept.
enum { HM_FP_DEFAULT = 0x1f80, HM_FP_MATTERS = 0xffc0 };

static inline uint64_t hm_fp_enter(void) {
	uint32_t was = _mm_getcsr();
	if ((was & HM_FP_MATTERS) != HM_FP_DEFAULT)
		_mm_setcsr(HM_FP_DEFAULT);
	return was;
}

static inline void hm_fp_leave(uint64_t was) {
	if ((was & HM_FP_MATTERS) != HM_FP_DEFAULT)
		_mm_setcsr((uint32_t)was);
}

#elif defined(__aarch64__)

static inline uint64_t hm_fp_enter(void) {
	uint64_t was;
	__asm__ volatile("mrs %0, fpcr" : "=r"(was)::"memory");
	if (was)
		__asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory");
	return was;
}

static inline void hm_fp_leave(uint64_t was) {
	if (was)
		__asm__ volatile("msr fpcr, %0" ::"r"(was) : "memory");
}

#else

static inline uint64_t hm_fp_enter(void) { return 0; }
static inline void hm_fp_leave(uint64_t was) { (void)was; }

#endif

#endif
