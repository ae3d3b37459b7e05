// SPDX-License-Identifier: MIT
//
// Which variant is in use. It is chosen when the first call is made, from what the processor and the kernel can do.

#include <stdatomic.h>

#include "kernels.h"

#ifdef __x86_64__

#include <cpuid.h>

// Not every compiler knows this one by name. The vector state that it needs is that of AVX2.
static int has_f16c(void) {
	unsigned a, b, c, d;
	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

#endif

// The variants that this machine runs, best first.
static size_t supported(const struct hm_kernels *all[3]) {
	size_t n = 0;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		all[n++] = &hm_avx512;
	if (__builtin_cpu_supports("avx2") && has_f16c())
		all[n++] = &hm_avx2;
#endif
	all[n++] = &hm_portable;
	return n;
}

static _Atomic(const struct hm_kernels *) in_use;

const struct hm_kernels *hm_kernels_in_use(void) {
	const struct hm_kernels *k = atomic_load_explicit(&in_use, memory_order_acquire);
	if (!k) {
		const struct hm_kernels *all[3];
		supported(all);
		k = all[0];
		atomic_store_explicit(&in_use, k, memory_order_release);
	}
	return k;
}

const char *hm_variant(void) { return hm_kernels_in_use()->name; }

int hm_use_variant(const char *name) {
	const struct hm_kernels *all[3];
	size_t n = supported(all);
	for (size_t i = 0; i < n; i++)
		if (!strcmp(all[i]->name, name)) {
			atomic_store_explicit(&in_use, all[i], memory_order_release);
			return 1;
		}
	return 0;
}
