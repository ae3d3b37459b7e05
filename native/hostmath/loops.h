// SPDX-License-Identifier: MIT
//
// The text of struct hm_kernels, above the vectors of vector.h. Who includes it has defined HM_NAME, the variant. Each variant
// does the same operations on each element in the same order, and so all agree bit for bit. Elements that do not fill a
// vector are worked on in a copy: no byte past the end is read or written.

// What a sum does besides adding; constants wherever they are used.
struct how {
	int type, scaled, weighted;
};

HM_INLINE vf term(struct how how, const struct hm_terms *t, size_t j, const uint8_t *p) {
	vf x = get(how.type, p);
	if (how.scaled)
		x = x * t->scale[j];
	if (how.weighted)
		x = t->weight[j] * x;
	return x;
}

// sum_strip sums count vectors in registers, at byte at of the rows. A strip is short on purpose: loads of all terms are then
// under way at once. With pieces of 512 elements of one term after another, sums of 8 terms from memory ran at half the speed.
HM_INLINE void sum_strip(struct how how, int count, float *acc, const struct hm_terms *t, size_t at, int keep) {
	const size_t step = HM_LANES * hm_size[how.type];
	vf sum[HM_STRIP];
	size_t j = !keep;
	for (int v = 0; v < count; v++)
		sum[v] = keep ? load(acc + v * HM_LANES) : term(how, t, 0, t->row[0] + at + v * step);
	for (; j < t->m; j++)
		for (int v = 0; v < count; v++)
			sum[v] = sum[v] + term(how, t, j, t->row[j] + at + v * step);
	for (int v = 0; v < count; v++)
		store(acc + v * HM_LANES, sum[v]);
}

// sum_tail sums less than a vector.
HM_INLINE void sum_tail(struct how how, float *acc, const struct hm_terms *t, size_t at, size_t n, int keep) {
	const size_t size = hm_size[how.type];
	float part[HM_LANES] = {0};
	if (keep)
		memcpy(part, acc, n * sizeof *part);
	for (size_t j = 0; j < t->m; j++) {
		uint8_t from[4 * HM_LANES] = {0};
		memcpy(from, t->row[j] + at, n * size);
		vf x = term(how, t, j, from);
		store(part, keep || j ? load(part) + x : x);
	}
	memcpy(acc, part, n * sizeof *part);
}

HM_INLINE void sum(struct how how, float *acc, const struct hm_terms *t, size_t from, size_t n, int keep) {
	const size_t size = hm_size[how.type];
	size_t i = 0;
	for (; i + HM_STRIP * HM_LANES <= n; i += HM_STRIP * HM_LANES)
		sum_strip(how, HM_STRIP, acc + i, t, (from + i) * size, keep);
	for (; i + HM_LANES <= n; i += HM_LANES)
		sum_strip(how, 1, acc + i, t, (from + i) * size, keep);
	if (i < n)
		sum_tail(how, acc + i, t, (from + i) * size, n - i, keep);
}

HM_INLINE void store_all(int type, int one, void *dst, const float *acc, size_t n, int32_t over) {
	const size_t size = hm_size[type];
	uint8_t *d = dst;
	size_t i = 0;
	for (; i + HM_LANES <= n; i += HM_LANES)
		put(type, d + i * size, one ? one_nan(load(acc + i)) : load(acc + i), over);
	if (i < n) {
		float part[HM_LANES] = {0};
		uint8_t to[4 * HM_LANES];
		memcpy(part, acc + i, (n - i) * sizeof *part);
		put(type, to, one ? one_nan(load(part)) : load(part), over);
		memcpy(d + i * size, to, (n - i) * size);
	}
}

// Magnitudes are in the order of their bits.
HM_INLINE vi amax_vector(vi most, const float *acc) {
	vi a = (vi)load(acc) & HM_ABS;
	a &= a < HM_INF;
	return pick(a > most, a, most);
}

static HM_TARGET int32_t amax(const float *acc, size_t n) {
	vi most = all(0);
	size_t i = 0;
	for (; i + HM_LANES <= n; i += HM_LANES)
		most = amax_vector(most, acc + i);
	if (i < n) {
		float part[HM_LANES] = {0};
		memcpy(part, acc + i, (n - i) * sizeof *part);
		most = amax_vector(most, part);
	}
	int32_t all_most = 0;
	for (int lane = 0; lane < HM_LANES; lane++)
		all_most = most[lane] > all_most ? most[lane] : all_most;
	return all_most;
}

static HM_TARGET void quant(void *dst, const float *acc, size_t n, float scale) {
	uint8_t *d = dst;
	size_t i = 0;
	for (; i + HM_LANES <= n; i += HM_LANES)
		narrow8(d + i, to_e4m3fn(load(acc + i) / scale, 0x7f));
	if (i < n) {
		float part[HM_LANES] = {0};
		uint8_t to[HM_LANES];
		memcpy(part, acc + i, (n - i) * sizeof *part);
		narrow8(to, to_e4m3fn(load(part) / scale, 0x7f));
		memcpy(d + i, to, n - i);
	}
}

#define HM_SUM(name, type, scaled, weighted) \
	static HM_TARGET void name(float *acc, const struct hm_terms *t, size_t from, size_t n, int keep) { \
		sum((struct how){type, scaled, weighted}, acc, t, from, n, keep); \
	}
#define HM_STORE(type, one) \
	static HM_TARGET void store_##type##one(void *dst, const float *acc, size_t n, int32_t over) { store_all(type, one, dst, acc, n, over); }

#define HM_TYPE_LOOPS(type) \
	HM_SUM(sum_##type##0, type, 0, 0) \
	HM_SUM(sum_##type##1, type, 0, 1) \
	HM_STORE(type, 0) \
	HM_STORE(type, 1)

HM_TYPE_LOOPS(HM_F32)
HM_TYPE_LOOPS(HM_BF16)
HM_TYPE_LOOPS(HM_E4M3FN)
HM_TYPE_LOOPS(HM_E4M3FNUZ)
HM_SUM(sum_scaled0, HM_E4M3FN, 1, 0)
HM_SUM(sum_scaled1, HM_E4M3FN, 1, 1)

#define HM_BOTH(loop) {loop##0, loop##1}
#define HM_EACH(loop) {HM_BOTH(loop##_HM_F32), HM_BOTH(loop##_HM_BF16), HM_BOTH(loop##_HM_E4M3FN), HM_BOTH(loop##_HM_E4M3FNUZ)}
#define HM_QUOTE(name) #name
#define HM_STRING(name) HM_QUOTE(name)
#define HM_JOIN(a, b) a##b
#define HM_TABLE(name) HM_JOIN(hm_, name)

const struct hm_kernels HM_TABLE(HM_NAME) = {
	.name = HM_STRING(HM_NAME),
	.sum = HM_EACH(sum),
	.sum_scaled = HM_BOTH(sum_scaled),
	.store = HM_EACH(store),
	.amax = amax,
	.quant = quant,
};
