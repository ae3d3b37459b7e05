// SPDX-License-Identifier: MIT
//
// Rows moved as bytes, and experts counted.

#include "kernels.h"

void hm_memcpy(uint64_t dst, uint64_t src, uint64_t n) { memcpy(HM_PTR(dst), HM_PTR(src), n); }

void hm_gather_rows(uint64_t dst, uint64_t src, uint64_t row_bytes, const int32_t *idx, uint64_t n) {
	for (uint64_t i = 0; i < n; i++)
		if (idx[i] >= 0)
			memcpy(HM_PTR(dst + i * row_bytes), HM_PTR(src + (uint64_t)idx[i] * row_bytes), row_bytes);
}

void hm_scatter_rows(uint64_t dst, uint64_t src, uint64_t row_bytes, const int32_t *idx, uint64_t n) {
	for (uint64_t i = 0; i < n; i++)
		if (idx[i] >= 0)
			memcpy(HM_PTR(dst + (uint64_t)idx[i] * row_bytes), HM_PTR(src + i * row_bytes), row_bytes);
}

void hm_copy_rows(uint64_t dst, uint64_t dst_stride, uint64_t src, uint64_t src_stride, uint64_t row_bytes, uint64_t n) {
	if (dst_stride == row_bytes && src_stride == row_bytes) {
		row_bytes *= n;
		n = n > 0;
	}
	for (uint64_t i = 0; i < n; i++)
		memcpy(HM_PTR(dst + i * dst_stride), HM_PTR(src + i * src_stride), row_bytes);
}

void hm_count_experts(int32_t *counts, uint64_t indices, uint64_t len, int32_t first, int32_t n) {
	const hm_i32 *ids = HM_PTR(indices);
	for (uint64_t i = 0; i < len; i++) {
		uint32_t local = (uint32_t)ids[i] - (uint32_t)first;
		if (local < (uint32_t)n)
			counts[local]++;
	}
}
