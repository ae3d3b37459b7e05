// SPDX-License-Identifier: MIT
//
// The flat C side of package hostmath. Addresses are numbers and need no alignment. Lengths and types have been checked
// by the caller; a status of 0 is success, HM_TYPE says that a type is unknown here.

#ifndef MORI_HOSTMATH_H
#define MORI_HOSTMATH_H

#include <stdint.h>

enum { HM_F32, HM_BF16, HM_E4M3FN, HM_E4M3FNUZ, HM_FLOATS };

enum { HM_OK = 0, HM_TYPE = 1 };

// hm_sum says what hm_sum_rows works on. With blocks > 0 each source row is in blocks of ceil(h / blocks) elements, and
// has a row of blocks float32 scales.
struct hm_sum {
	uint64_t dst;
	uint64_t n, h;
	uint64_t max_src;
	uint64_t blocks;
	int32_t dst_type, src_type;
};

// The name of the variant in use, "portable", "avx2" or "avx512".
const char *hm_variant(void);
// Makes the variant of that name the one in use; 0 if this machine cannot run it. For tests.
int hm_use_variant(const char *name);
// memcpy, for benchmarks.
void hm_memcpy(uint64_t dst, uint64_t src, uint64_t n);

// dst row i = src row idx[i], or dst row idx[i] = src row i; rows with idx[i] < 0 are left out.
void hm_gather_rows(uint64_t dst, uint64_t src, uint64_t row_bytes, const int32_t *idx, uint64_t n);
void hm_scatter_rows(uint64_t dst, uint64_t src, uint64_t row_bytes, const int32_t *idx, uint64_t n);
void hm_copy_rows(uint64_t dst, uint64_t dst_stride, uint64_t src, uint64_t src_stride, uint64_t row_bytes, uint64_t n);
void hm_count_experts(int32_t *counts, uint64_t indices, uint64_t len, int32_t first, int32_t n);

// rows, scales and weights are [n][max_src]; scales is NULL without blocks, weights may be NULL. A row of address 0 is absent.
int hm_sum_rows(const struct hm_sum *s, const uint64_t *rows, const uint64_t *scales, const float *weights);
int hm_convert(uint64_t dst, int32_t dst_type, uint64_t src, int32_t src_type, uint64_t n, int32_t saturate);
int hm_quant_blocks(uint64_t dst, uint64_t scales, uint64_t src, int32_t src_type, uint64_t rows, uint64_t h, uint64_t blocks);

#endif
