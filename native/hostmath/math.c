// SPDX-License-Identifier: MIT
//
// Sums, conversions and quantisation: rows are cut into pieces here, and the variant in use does the pieces.

#include "fpstate.h"
#include "kernels.h"

// What becomes of numbers that do not fit.
static const int32_t nan_of[HM_FLOATS] = {0, 0, 0x7f, 0x80};
static const int32_t largest_of[HM_FLOATS] = {0, 0, 0x7e, 0x7f};

static int is_float(int32_t type) { return type >= 0 && type < HM_FLOATS; }
static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t ceil_div(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

// add_blocks adds elements at .. at+n of a row in blocks of block elements to acc, or makes acc of them unless keep.
static void add_blocks(const struct hm_kernels *k, float *acc, uint64_t row, const hm_float *scales, uint64_t block, uint64_t at, uint64_t n,
		       const float *w, int keep) {
	for (uint64_t done = 0; done < n;) {
		uint64_t i = at + done, b = i / block;
		uint64_t len = least(n - done, (b + 1) * block - i);
		k->add_scaled[keep][w != NULL](acc + done, HM_PTR(row + i), len, scales[b], w ? *w : 1);
		done += len;
	}
}

// sum_row makes one row; rows, scales and weights are those of the row.
static void sum_row(const struct hm_kernels *k, const struct hm_sum *s, uint64_t dst, const uint64_t *rows, const uint64_t *scales, const float *weights) {
	float acc[HM_PIECE];
	uint64_t block = s->blocks ? ceil_div(s->h, s->blocks) : 0;
	for (uint64_t at = 0; at < s->h; at += HM_PIECE) {
		uint64_t n = least(s->h - at, HM_PIECE);
		int keep = 0;
		for (uint64_t j = 0; j < s->max_src; j++) {
			const float *w = weights ? &weights[j] : NULL;
			if (!rows[j])
				continue;
			if (block)
				add_blocks(k, acc, rows[j], HM_PTR(scales[j]), block, at, n, w, keep);
			else
				k->add[s->src_type][keep][w != NULL](acc, HM_PTR(rows[j] + at * hm_size[s->src_type]), n, w ? *w : 1);
			keep = 1;
		}
		if (!keep)
			memset(acc, 0, n * sizeof *acc);
		k->store[s->dst_type][1](HM_PTR(dst + at * hm_size[s->dst_type]), acc, n, nan_of[s->dst_type]);
	}
}

int hm_sum_rows(const struct hm_sum *s, const uint64_t *rows, const uint64_t *scales, const float *weights) {
	if (!is_float(s->dst_type) || !is_float(s->src_type) || (s->blocks && s->src_type != HM_E4M3FN))
		return HM_TYPE;
	const struct hm_kernels *k = hm_kernels_in_use();
	uint64_t state = hm_fp_enter();
	for (uint64_t t = 0; t < s->n; t++) {
		uint64_t first = t * s->max_src;
		sum_row(k, s, s->dst + t * s->h * hm_size[s->dst_type], rows + first, scales ? scales + first : NULL, weights ? weights + first : NULL);
	}
	hm_fp_leave(state);
	return HM_OK;
}

int hm_convert(uint64_t dst, int32_t dst_type, uint64_t src, int32_t src_type, uint64_t n, int32_t saturate) {
	if (!is_float(dst_type) || !is_float(src_type))
		return HM_TYPE;
	const struct hm_kernels *k = hm_kernels_in_use();
	int32_t over = (saturate ? largest_of : nan_of)[dst_type];
	float piece[HM_PIECE];
	uint64_t state = hm_fp_enter();
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		k->add[src_type][0][0](piece, HM_PTR(src + at * hm_size[src_type]), len, 1);
		k->store[dst_type][0](HM_PTR(dst + at * hm_size[dst_type]), piece, len, over);
	}
	hm_fp_leave(state);
	return HM_OK;
}

// scale_of is the scale of a block whose largest finite magnitude has the bits most: the largest becomes 448. A block of
// zeros has scale 1. Subnormal scales would be too coarse to divide by, so that there are none.
static float scale_of(int32_t most) {
	float scale;
	memcpy(&scale, &most, sizeof scale);
	if (!most)
		return 1;
	scale /= 448;
	return scale < 0x1p-126f ? 0x1p-126f : scale;
}

static float quant_block(const struct hm_kernels *k, uint64_t dst, uint64_t src, int32_t src_type, uint64_t n) {
	float piece[HM_PIECE];
	int32_t most = 0;
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		k->add[src_type][0][0](piece, HM_PTR(src + at * hm_size[src_type]), len, 1);
		int32_t here = k->amax(piece, len);
		most = here > most ? here : most;
	}
	float scale = scale_of(most);
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		if (n > HM_PIECE) // else the piece is still there
			k->add[src_type][0][0](piece, HM_PTR(src + at * hm_size[src_type]), len, 1);
		k->quant(HM_PTR(dst + at), piece, len, scale);
	}
	return scale;
}

int hm_quant_blocks(uint64_t dst, uint64_t scales, uint64_t src, int32_t src_type, uint64_t rows, uint64_t h, uint64_t blocks) {
	if (!is_float(src_type))
		return HM_TYPE;
	const struct hm_kernels *k = hm_kernels_in_use();
	hm_float *scale = HM_PTR(scales);
	uint64_t block = ceil_div(h, blocks), size = hm_size[src_type];
	uint64_t state = hm_fp_enter();
	for (uint64_t r = 0; r < rows; r++)
		for (uint64_t b = 0; b < blocks; b++) {
			uint64_t at = least(b * block, h), n = least(block, h - at);
			*scale++ = quant_block(k, dst + r * h + at, src + (r * h + at) * size, src_type, n);
		}
	hm_fp_leave(state);
	return HM_OK;
}
