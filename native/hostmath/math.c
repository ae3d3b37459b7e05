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

// A row of the sum and its part of the tables.
struct row {
	const struct hm_sum *s;
	const uint64_t *rows, *scales;
	const float *weights;
};

// next_terms takes the next sources that there are from place *j of the table on, and answers how many they are.
static size_t next_terms(const struct row *r, uint64_t *j, struct hm_terms *t, const hm_float *scales[HM_TERMS]) {
	size_t m = 0;
	for (; *j < r->s->max_src && m < HM_TERMS; ++*j) {
		if (!r->rows[*j])
			continue;
		t->row[m] = HM_PTR(r->rows[*j]);
		t->weight[m] = r->weights ? r->weights[*j] : 1;
		scales[m] = r->scales ? HM_PTR(r->scales[*j]) : NULL;
		m++;
	}
	return t->m = m;
}

// sum_blocks sums elements at .. at+n of rows in blocks of block elements.
static void sum_blocks(const struct hm_kernels *k, float *acc, struct hm_terms *t, const hm_float *const *scales, int weighted, uint64_t block,
		       uint64_t at, uint64_t n, int keep) {
	for (uint64_t done = 0; done < n;) {
		uint64_t i = at + done, b = i / block;
		uint64_t len = least(n - done, (b + 1) * block - i);
		for (size_t j = 0; j < t->m; j++)
			t->scale[j] = scales[j][b];
		k->sum_scaled[weighted](acc + done, t, i, len, keep);
		done += len;
	}
}

static void sum_row(const struct hm_kernels *k, const struct row *r, uint64_t dst) {
	const struct hm_sum *s = r->s;
	float acc[HM_PIECE] __attribute__((aligned(64)));
	struct hm_terms t;
	const hm_float *scales[HM_TERMS];
	uint64_t block = s->blocks ? ceil_div(s->h, s->blocks) : 0;
	int weighted = r->weights != NULL;
	for (uint64_t at = 0; at < s->h; at += HM_PIECE) {
		uint64_t n = least(s->h - at, HM_PIECE);
		int keep = 0;
		for (uint64_t j = 0; next_terms(r, &j, &t, scales); keep = 1)
			if (block)
				sum_blocks(k, acc, &t, scales, weighted, block, at, n, keep);
			else
				k->sum[s->src_type][weighted](acc, &t, at, n, keep);
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
	struct row r = {s, rows, scales, weights};
	for (uint64_t i = 0; i < s->n; i++) {
		sum_row(k, &r, s->dst + i * s->h * hm_size[s->dst_type]);
		r.rows += s->max_src;
		r.scales += scales ? s->max_src : 0;
		r.weights += weights ? s->max_src : 0;
	}
	hm_fp_leave(state);
	return HM_OK;
}

// load makes elements at .. at+n of a row float32.
static void load(const struct hm_kernels *k, float *piece, uint64_t row, int32_t type, uint64_t at, uint64_t n) {
	struct hm_terms t; // all of it at each piece would cost as much as the piece
	t.m = 1;
	t.row[0] = HM_PTR(row);
	k->sum[type][0](piece, &t, at, n, 0);
}

int hm_convert(uint64_t dst, int32_t dst_type, uint64_t src, int32_t src_type, uint64_t n, int32_t saturate) {
	if (!is_float(dst_type) || !is_float(src_type))
		return HM_TYPE;
	const struct hm_kernels *k = hm_kernels_in_use();
	int32_t over = (saturate ? largest_of : nan_of)[dst_type];
	float piece[HM_PIECE] __attribute__((aligned(64)));
	uint64_t state = hm_fp_enter();
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		load(k, piece, src, src_type, at, len);
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
	float piece[HM_PIECE] __attribute__((aligned(64)));
	int32_t most = 0;
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		load(k, piece, src, src_type, at, len);
		int32_t here = k->amax(piece, len);
		most = here > most ? here : most;
	}
	float scale = scale_of(most);
	for (uint64_t at = 0; at < n; at += HM_PIECE) {
		uint64_t len = least(n - at, HM_PIECE);
		if (n > HM_PIECE) // else the piece is still there
			load(k, piece, src, src_type, at, len);
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
