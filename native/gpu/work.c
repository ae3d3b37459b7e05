// SPDX-License-Identifier: MIT
//
// Streams, events, copies, modules and launches: what a device is asked to do.

#include "table.h"

#include "within.h"

struct gpu_rc gpu_copy(struct gpu_api *a, int dev, uint64_t dst, uint64_t src, uint64_t n, uint64_t stream) {
	return WITHIN(a, dev, a->v->copy(a, dst, src, n, stream));
}

struct gpu_rc gpu_copy_peer(struct gpu_api *a, int dev, uint64_t dst, int dst_dev, uint64_t src, int src_dev, uint64_t n, uint64_t stream) {
	return WITHIN(a, dev, a->v->copy_peer(a, dst, dst_dev, src, src_dev, n, stream));
}

struct gpu_rc gpu_set(struct gpu_api *a, int dev, uint64_t dst, uint8_t value, uint64_t n, uint64_t stream) {
	return WITHIN(a, dev, GPU_ASK(a, set, dst, value, n, stream));
}

struct gpu_rc gpu_priorities(struct gpu_api *a, int dev, int *least, int *greatest) {
	return WITHIN(a, dev, GPU_ASK(a, priorities, least, greatest));
}

// gpu_stream_create makes streams that do not wait for the default stream.
struct gpu_rc gpu_stream_create(struct gpu_api *a, int dev, int priority, uint64_t *stream) {
	return WITHIN(a, dev, GPU_ASK(a, stream_create, stream, 1, priority)); // CU_STREAM_NON_BLOCKING, hipStreamNonBlocking
}

struct gpu_rc gpu_stream_destroy(struct gpu_api *a, int dev, uint64_t stream) { return WITHIN(a, dev, GPU_ASK(a, stream_destroy, stream)); }

// A query of a stream or event with a name of its own needs nothing current.
struct gpu_rc gpu_stream_query(struct gpu_api *a, int dev, uint64_t stream) {
	return stream ? GPU_ASK(a, stream_query, stream) : WITHIN(a, dev, GPU_ASK(a, stream_query, stream));
}

struct gpu_rc gpu_stream_wait(struct gpu_api *a, int dev, uint64_t stream, uint64_t event) {
	return WITHIN(a, dev, GPU_ASK(a, stream_wait, stream, event, 0));
}

struct gpu_rc gpu_event_create(struct gpu_api *a, int dev, int timing, uint64_t *event) {
	return WITHIN(a, dev, GPU_ASK(a, event_create, event, timing ? 0 : 2)); // CU_EVENT_DISABLE_TIMING, hipEventDisableTiming
}

struct gpu_rc gpu_event_destroy(struct gpu_api *a, int dev, uint64_t event) { return WITHIN(a, dev, GPU_ASK(a, event_destroy, event)); }

struct gpu_rc gpu_event_record(struct gpu_api *a, int dev, uint64_t event, uint64_t stream) {
	return WITHIN(a, dev, GPU_ASK(a, event_record, event, stream));
}

struct gpu_rc gpu_event_query(struct gpu_api *a, int dev, uint64_t event) {
	(void)dev;
	return GPU_ASK(a, event_query, event);
}

struct gpu_rc gpu_event_elapsed(struct gpu_api *a, int dev, uint64_t from, uint64_t to, float *ms) {
	return WITHIN(a, dev, GPU_ASK(a, event_elapsed, ms, from, to));
}

struct gpu_rc gpu_module_load(struct gpu_api *a, int dev, const void *image, uint64_t *module, char *log, size_t n) {
	return WITHIN(a, dev, a->v->module_load(a, image, module, log, n));
}

struct gpu_rc gpu_module_unload(struct gpu_api *a, int dev, uint64_t module) { return WITHIN(a, dev, GPU_ASK(a, module_unload, module)); }

struct gpu_rc gpu_module_function(struct gpu_api *a, int dev, uint64_t module, const char *name, uint64_t *function) {
	return WITHIN(a, dev, GPU_ASK(a, module_function, function, module, name));
}

struct gpu_rc gpu_module_global(struct gpu_api *a, int dev, uint64_t module, const char *name, uint64_t *addr, uint64_t *n) {
	size_t size = 0;
	struct gpu_rc rc = WITHIN(a, dev, GPU_ASK(a, module_global, addr, &size, module, name));
	*n = size;
	return rc;
}

struct gpu_rc gpu_function_attribute(struct gpu_api *a, int dev, uint64_t function, int attribute, int *value) {
	return WITHIN(a, dev, GPU_ASK(a, function_attr, value, attribute, function));
}

struct gpu_rc gpu_function_shared(struct gpu_api *a, int dev, uint64_t function, int bytes) {
	return WITHIN(a, dev, a->v->function_shared(a, function, bytes));
}

// gpu_launch passes the arguments as one buffer, laid out as the kernel's parameters are.
struct gpu_rc gpu_launch(struct gpu_api *a, int dev, uint64_t function, const struct gpu_grid *g, uint64_t stream, void *args, size_t n) {
	// CU_LAUNCH_PARAM_BUFFER_POINTER is 1, CU_LAUNCH_PARAM_BUFFER_SIZE 2.
	void *extra[] = {(void *)1, args, (void *)2, &n, (void *)(uintptr_t)a->v->launch_end};
	return WITHIN(a, dev,
		GPU_ASK(a, launch, function, g->grid[0], g->grid[1], g->grid[2], g->block[0], g->block[1], g->block[2], g->shared, stream, NULL, n ? extra : NULL));
}
