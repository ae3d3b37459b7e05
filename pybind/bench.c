// SPDX-License-Identifier: MIT

#include "bench.h"

#include <sched.h>
#include <string.h>
#include <time.h>

// A waiter polls its flag kLooks times before it yields the core. A process with a core of its own
// never yields.
enum { kLooks = 1 << 14, kPatienceS = 60 };

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// BEST times a body. The barrier keeps the compiler from merging or removing rounds.
#define BEST(body)                                      \
	for (int64_t run = 0; run < runs; run++) {          \
		double begin = now();                           \
		for (int64_t i = 0; i < rounds; i++) {          \
			body;                                       \
			__asm__ volatile("" ::: "memory");          \
		}                                               \
		double took = (now() - begin) / (double)rounds; \
		best = took < best ? took : best;               \
	}

// USE makes the compiler choose the form of an instruction that returns the old value.
#define USE(value) __asm__ volatile("" ::"r"(value))

double mori_bench_raw(int kind, uint64_t dest, uint64_t source, uint64_t n, int64_t rounds, int64_t runs) {
	double best = 1e18;
	uint64_t *word = (uint64_t *)dest;
	switch (kind) {
	case MORI_RAW_MEMCPY:
		BEST(memcpy((void *)dest, (const void *)source, n));
		break;
	case MORI_RAW_STORE:
		BEST(__atomic_store_n(word, *(const uint64_t *)source, __ATOMIC_SEQ_CST));
		break;
	case MORI_RAW_SWAP:
		BEST(USE(__atomic_exchange_n(word, (uint64_t)(run * rounds + i + 1), __ATOMIC_SEQ_CST)));
		break;
	case MORI_RAW_COMPARE_SWAP:
		BEST(uint64_t old = (uint64_t)(run * rounds + i);
		     __atomic_compare_exchange_n(word, &old, old + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); USE(old));
		break;
	case MORI_RAW_FETCH_ADD:
		BEST(USE(__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST)));
		break;
	}
	return best;
}

// await_flag spins until a flag reaches a value. It returns 0 after kPatienceS seconds.
static int await_flag(const uint64_t *flag, uint64_t value) {
	double begin = 0;
	for (int64_t looks = 1; __atomic_load_n(flag, __ATOMIC_ACQUIRE) < value; looks++) {
		if (looks % kLooks != 0) {
			continue;
		}
		sched_yield();
		if (begin == 0) {
			begin = now();
		} else if (now() - begin > kPatienceS * 1e9) {
			return 0;
		}
	}
	return 1;
}

double mori_bench_barrier(const mori_flags *f, uint64_t first, int64_t rounds, int64_t runs) {
	double best = 1e18;
	BEST(for (int s = 0; s < f->steps; s++) {
		uint64_t value = first + (uint64_t)(run * rounds + i);
		__atomic_store_n((uint64_t *)f->peers[s], value, __ATOMIC_RELEASE);
		if (!await_flag((const uint64_t *)(f->own + (uint64_t)s * MORI_RAW_LINE), value)) {
			return -1;
		}
	});
	return best;
}
