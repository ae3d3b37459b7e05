// SPDX-License-Identifier: MIT
//
// The text of struct hm_kernels, above the vectors of vector.h. Who includes it has defined HM_NAME, the variant. Each variant
// does the same operations on each element in the same order, and so all agree bit for bit. Elements that do not fill a
// vector are worked on in a copy: no byte past the end is read or written.

// What an addition does besides converting; constants wherever they are used.
struct how {
	int type, keep, scaled, weighted;
};

HM_INLINE void add_vector(struct how how, float *acc, const void *src, float scale, float w) {
	vf x = get(how.type, src);
	if (how.scaled)
		x = x * scale;
	if (how.weighted)
		x = w * x;
	store(acc, how.keep ? load(acc) + x : x);
}

HM_INLINE void add(struct how how, float *acc, const void *src, size_t n, float scale, float w) {
	const size_t size = hm_size[how.type];
	const uint8_t *s = src;
	size_t i = 0;
	for (; i + HM_LANES <= n; i += HM_LANES)
		add_vector(how, acc + i, s + i * size, scale, w);
	if (i < n) {
		float part[HM_LANES] = {0};
		uint8_t from[4 * HM_LANES] = {0};
		memcpy(from, s + i * size, (n - i) * size);
		if (how.keep)
			memcpy(part, acc + i, (n - i) * sizeof *part);
		add_vector(how, part, from, scale, w);
		memcpy(acc + i, part, (n - i) * sizeof *part);
	}
}

HM_INLINE void store_all(int type, int sum, void *dst, const float *acc, size_t n, int32_t over) {
	const size_t size = hm_size[type];
	uint8_t *d = dst;
	size_t i = 0;
	for (; i + HM_LANES <= n; i += HM_LANES)
		put(type, d + i * size, sum ? one_nan(load(acc + i)) : load(acc + i), over);
	if (i < n) {
		float part[HM_LANES] = {0};
		uint8_t to[4 * HM_LANES];
		memcpy(part, acc + i, (n - i) * sizeof *part);
		put(type, to, sum ? one_nan(load(part)) : load(part), over);
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

#define HM_ADD(type, keep, weighted) \
	static HM_TARGET void add_##type##keep##weighted(float *acc, const void *src, size_t n, float w) { \
		add((struct how){type, keep, 0, weighted}, acc, src, n, 1, w); \
	}
#define HM_ADD_SCALED(keep, weighted) \
	static HM_TARGET void add_scaled##keep##weighted(float *acc, const void *src, size_t n, float scale, float w) { \
		add((struct how){HM_E4M3FN, keep, 1, weighted}, acc, src, n, scale, w); \
	}
#define HM_STORE(type, sum) \
	static HM_TARGET void store_##type##sum(void *dst, const float *acc, size_t n, int32_t over) { store_all(type, sum, dst, acc, n, over); }

#define HM_TYPE_LOOPS(type) \
	HM_ADD(type, 0, 0) \
	HM_ADD(type, 0, 1) \
	HM_ADD(type, 1, 0) \
	HM_ADD(type, 1, 1) \
	HM_STORE(type, 0) \
	HM_STORE(type, 1)

HM_TYPE_LOOPS(HM_F32)
HM_TYPE_LOOPS(HM_BF16)
HM_TYPE_LOOPS(HM_E4M3FN)
HM_TYPE_LOOPS(HM_E4M3FNUZ)
HM_ADD_SCALED(0, 0)
HM_ADD_SCALED(0, 1)
HM_ADD_SCALED(1, 0)
HM_ADD_SCALED(1, 1)

#define HM_ADDS(loop) {{loop##00, loop##01}, {loop##10, loop##11}}
#define HM_STORES(type) {store_##type##0, store_##type##1}
#define HM_QUOTE(name) #name
#define HM_STRING(name) HM_QUOTE(name)
#define HM_JOIN(a, b) a##b
#define HM_TABLE(name) HM_JOIN(hm_, name)

const struct hm_kernels HM_TABLE(HM_NAME) = {
	.name = HM_STRING(HM_NAME),
	.add = {HM_ADDS(add_HM_F32), HM_ADDS(add_HM_BF16), HM_ADDS(add_HM_E4M3FN), HM_ADDS(add_HM_E4M3FNUZ)},
	.add_scaled = HM_ADDS(add_scaled),
	.store = {HM_STORES(HM_F32), HM_STORES(HM_BF16), HM_STORES(HM_E4M3FN), HM_STORES(HM_E4M3FNUZ)},
	.amax = amax,
	.quant = quant,
};
