// SPDX-License-Identifier: MIT
//
// Runs every kernel of each variant over odd sizes and addresses in memory of malloc, for the address and
// undefined-behaviour sanitizers to watch, and compares the variants' results. TestSanitizers builds and runs it.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../hostmath.h"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

static const uint64_t size_of[HM_FLOATS] = {4, 2, 1, 1};
static uint64_t seed = 1;

static uint32_t random32(void) {
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 32);
}

// A buffer of exactly size bytes at an address that is off from malloc's alignment.
struct buffer {
	char *whole;
	uint64_t at, size;
};

static struct buffer buffer(uint64_t size) {
	uint64_t off = random32() % 8;
	struct buffer b = {malloc(off + size), 0, size};
	if (!b.whole)
		abort();
	b.at = (uint64_t)(uintptr_t)b.whole + off;
	for (uint64_t i = 0; i < size; i++)
		b.whole[off + i] = (char)random32();
	return b;
}

// check adds what lies in b to the digest of all results, and frees it.
static uint64_t digest;
static void check(struct buffer b) {
	const unsigned char *p = (void *)(uintptr_t)b.at;
	for (uint64_t i = 0; i < b.size; i++)
		digest = (digest ^ p[i]) * 1099511628211u;
	free(b.whole);
}

static void rows(uint64_t row, uint64_t n) {
	struct buffer a = buffer(n * row), b = buffer(n * row), c = buffer(n * row), d = buffer(n * (row + 5)), ids = buffer(4 * n);
	int32_t *idx = malloc(4 * n), counts[5] = {0};
	for (uint64_t i = 0; i < n; i++)
		idx[i] = (int32_t)(random32() % (n + 1)) - 1;
	hm_gather_rows(b.at, a.at, row, idx, n);
	hm_scatter_rows(c.at, a.at, row, idx, n);
	hm_copy_rows(d.at, row + 5, a.at, row, row, n);
	hm_count_experts(counts, ids.at, n, -3, 5);
	hm_count_experts(counts, ids.at, n, INT32_MIN, 5);
	free(idx);
	check(a);
	check(b);
	check(c);
	check(d);
	check(ids);
}

static void sums(int32_t dst_type, int32_t src_type, uint64_t h, uint64_t m, uint64_t blocks, int weighted) {
	enum { N = 2, MOST = 70 };
	struct buffer src[N * MOST] = {{0}}, scale[N * MOST] = {{0}}, dst = buffer(N * h * size_of[dst_type]);
	uint64_t at[N * MOST] = {0}, scale_at[N * MOST] = {0};
	float weights[N * MOST];
	for (uint64_t j = 0; j < N * m; j++) {
		weights[j] = (float)(random32() % 1000) / 1024; // exact, whatever the rounding is
		if (random32() % 4 == 0)
			continue;
		src[j] = buffer(h * size_of[src_type]);
		scale[j] = buffer(4 * blocks);
		at[j] = src[j].at;
		scale_at[j] = scale[j].at;
	}
	struct hm_sum s = {dst.at, N, h, m, blocks, dst_type, src_type};
	if (hm_sum_rows(&s, at, blocks ? scale_at : NULL, weighted ? weights : NULL) != HM_OK)
		abort();
	for (uint64_t j = 0; j < N * m; j++) {
		free(src[j].whole);
		free(scale[j].whole);
	}
	check(dst);
}

static void conversions(int32_t dst_type, int32_t src_type, uint64_t n) {
	struct buffer src = buffer(n * size_of[src_type]), dst = buffer(n * size_of[dst_type]);
	if (hm_convert(dst.at, dst_type, src.at, src_type, n, (int32_t)(n & 1)) != HM_OK)
		abort();
	check(src);
	check(dst);
}

static void quantisation(int32_t src_type, uint64_t h, uint64_t blocks) {
	struct buffer src = buffer(2 * h * size_of[src_type]), dst = buffer(2 * h), scales = buffer(2 * blocks * 4);
	if (hm_quant_blocks(dst.at, scales.at, src.at, src_type, 2, h, blocks) != HM_OK)
		abort();
	check(src);
	check(dst);
	check(scales);
}

// The same calls give the same bits whatever the caller's floating point state is, and leave that as it was.
static void all_kernels(int flush) {
	(void)flush;
#ifdef __x86_64__
	unsigned before = _mm_getcsr();
	unsigned state = flush ? before | 0xe040 : before; // subnormals are zero, round to zero
	_mm_setcsr(state);
#endif
	static const uint64_t sizes[] = {0, 1, 3, 7, 8, 15, 17, 31, 33, 63, 64, 65, 100, 511, 513, 1030};
	seed = 1;
	digest = 14695981039346656037u;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		rows(sizes[i], 1 + i % 5);
		for (int32_t a = 0; a < HM_FLOATS; a++) {
			for (int32_t b = 0; b < HM_FLOATS; b++) {
				uint64_t m = 1 + random32() % 9;
				sums(a, b, sizes[i], m, 0, m % 2);
				conversions(a, b, sizes[i]);
			}
			uint64_t blocks = 1 + random32() % 60;
			sums(a, HM_E4M3FN, sizes[i], 1 + blocks % 40, blocks, blocks % 2);
			quantisation(a, sizes[i], blocks);
		}
	}
	sums(HM_BF16, HM_BF16, 700, 70, 0, 1);
	sums(HM_BF16, HM_E4M3FN, 700, 70, 56, 1);
#ifdef __x86_64__
	// The sticky flags of exceptions are the kernels' to set.
	if ((_mm_getcsr() & ~0x3fu) != (state & ~0x3fu)) {
		fprintf(stderr, "the floating point state was %#x and is %#x\n", state, _mm_getcsr());
		exit(1);
	}
	_mm_setcsr(before);
#endif
}

int main(void) {
	static const char *const names[] = {"portable", "avx2", "avx512"};
	struct hm_sum unknown = {.n = 1, .dst_type = HM_FLOATS};
	if (hm_sum_rows(&unknown, NULL, NULL, NULL) != HM_TYPE || hm_convert(0, 0, 0, -1, 1, 0) != HM_TYPE ||
	    hm_quant_blocks(0, 0, 0, HM_FLOATS, 1, 1, 1) != HM_TYPE || hm_use_variant("none")) {
		fprintf(stderr, "an unknown type or variant was taken\n");
		return 1;
	}
	uint64_t first = 0;
	for (int i = 0; i < 3; i++) {
		if (!hm_use_variant(names[i]))
			continue;
		for (int flush = 0; flush < 2; flush++) {
			all_kernels(flush);
			printf("%s, flush %d: %016llx\n", hm_variant(), flush, (unsigned long long)digest);
			if (!first)
				first = digest;
			if (digest != first) {
				fprintf(stderr, "%s gives other results than portable, flush %d\n", hm_variant(), flush);
				return 1;
			}
		}
	}
	return 0;
}
