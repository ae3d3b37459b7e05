// SPDX-License-Identifier: MIT
//
// Copies, streams, events, modules and launches. Part of fake.c.

// on tells whether work may go to a stream: its device must be the current one.
static int on(uint64_t stream, int dev) {
	struct thing *t = stream ? named(STREAM, stream) : NULL;
	return !stream || (t && t->dev == dev) ? 0 : BAD_HANDLE;
}

static int copied(uint64_t dst, uint64_t src, size_t n) {
	struct thing *to = around(dst), *from = around(src);
	if ((to && dst + n > to->base + to->size) || (from && src + n > from->base + from->size))
		return INVALID;
	memmove((void *)(uintptr_t)dst, (void *)(uintptr_t)src, n);
	return 0;
}

#ifdef FAKE_HIP
int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t n, int kind, uint64_t stream) {
	START("hipMemcpyAsync")
	code = kind != 4 ? INVALID : on(stream, dev) ? BAD_HANDLE : copied(dst, src, n);
	END
}

int hipMemcpyPeerAsync(uint64_t dst, int to, uint64_t src, int from, size_t n, uint64_t stream) {
	START("hipMemcpyPeerAsync")
	struct thing *d = around(dst), *s = around(src);
	code = !d || d->dev != to || !s || s->dev != from ? INVALID : on(stream, dev) ? BAD_HANDLE : copied(dst, src, n);
	END
}
#else
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t n, uint64_t stream) {
	START("cuMemcpyAsync")
	code = on(stream, dev) ? BAD_HANDLE : copied(dst, src, n);
	END
}

int cuMemcpyPeerAsync(uint64_t dst, void *to, uint64_t src, void *from, size_t n, uint64_t stream) {
	START("cuMemcpyPeerAsync")
	struct thing *d = around(dst), *s = around(src);
	code = !d || &contexts[d->dev] != to || !s || &contexts[s->dev] != from ? INVALID : on(stream, dev) ? BAD_HANDLE : copied(dst, src, n);
	END
}
#endif

DEF(cuMemsetD8Async, hipMemsetD8Async, (uint64_t dst, unsigned char value, size_t n, uint64_t stream)) {
	START(CALLED(cuMemsetD8Async, hipMemsetD8Async))
	struct thing *t = around(dst);
	code = on(stream, dev);
	if (!code && (!t || dst + n > t->base + t->size))
		code = INVALID;
	if (!code)
		memset((void *)(uintptr_t)dst, value, n);
	END
}

DEF(cuStreamCreateWithPriority, hipStreamCreateWithPriority, (uint64_t * stream, unsigned flags, int priority)) {
	(void)priority;
	START(CALLED(cuStreamCreateWithPriority, hipStreamCreateWithPriority))
	*stream = name_of(make(STREAM, dev));
	if (flags != 1)
		code = INVALID;
	END
}

DEF(cuStreamDestroy_v2, hipStreamDestroy, (uint64_t stream)) {
	START(CALLED(cuStreamDestroy_v2, hipStreamDestroy))
	code = stream ? on(stream, dev) : BAD_HANDLE;
	if (!code)
		drop(named(STREAM, stream));
	END
}

DEF(cuStreamQuery, hipStreamQuery, (uint64_t stream)) {
	OUTSIDE(CALLED(cuStreamQuery, hipStreamQuery))
	code = stream ? (named(STREAM, stream) ? 0 : BAD_HANDLE) : here() < 0 ? NO_CONTEXT : 0;
	END
}

DEF(cuStreamWaitEvent, hipStreamWaitEvent, (uint64_t stream, uint64_t event, unsigned flags)) {
	(void)flags;
	START(CALLED(cuStreamWaitEvent, hipStreamWaitEvent))
	code = on(stream, dev) || !named(EVENT, event) ? BAD_HANDLE : 0;
	END
}

DEF(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange, (int *least, int *greatest)) {
	START(CALLED(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange))
	*least = 0;
	*greatest = -5;
	END
}

DEF(cuEventCreate, hipEventCreateWithFlags, (uint64_t * event, unsigned flags)) {
	(void)flags;
	START(CALLED(cuEventCreate, hipEventCreateWithFlags))
	*event = name_of(make(EVENT, dev));
	END
}

DEF(cuEventDestroy_v2, hipEventDestroy, (uint64_t event)) {
	START(CALLED(cuEventDestroy_v2, hipEventDestroy))
	struct thing *t = named(EVENT, event);
	if (t)
		drop(t);
	else
		code = BAD_HANDLE;
	END
}

DEF(cuEventRecord, hipEventRecord, (uint64_t event, uint64_t stream)) {
	START(CALLED(cuEventRecord, hipEventRecord))
	struct thing *t = named(EVENT, event);
	code = !t || t->dev != dev || on(stream, dev) ? BAD_HANDLE : 0;
	if (!code)
		clock_gettime(CLOCK_MONOTONIC, &t->when);
	END
}

DEF(cuEventQuery, hipEventQuery, (uint64_t event)) {
	OUTSIDE(CALLED(cuEventQuery, hipEventQuery))
	code = named(EVENT, event) ? 0 : BAD_HANDLE;
	END
}

DEF(cuEventElapsedTime, hipEventElapsedTime, (float *ms, uint64_t from, uint64_t to)) {
	OUTSIDE(CALLED(cuEventElapsedTime, hipEventElapsedTime))
	struct thing *a = named(EVENT, from), *b = named(EVENT, to);
	if (a && b)
		*ms = (float)(b->when.tv_sec - a->when.tv_sec) * 1e3f + (float)(b->when.tv_nsec - a->when.tv_nsec) * 1e-6f;
	else
		code = BAD_HANDLE;
	END
}

static int loaded(uint64_t *module, const char *image, int dev) {
	if (!strncmp(image, "old", 3))
		return OLD_PTX;
	if (strncmp(image, "fake", 4))
		return BAD_PTX;
	struct thing *t = make(MODULE, dev);
	t->size = 64;
	t->base = (uintptr_t)calloc(1, t->size);
	*module = name_of(t);
	return 0;
}

#ifdef FAKE_HIP
int hipModuleLoadData(uint64_t *module, const void *image) {
	START("hipModuleLoadData")
	code = loaded(module, image, dev);
	END
}
#else
int cuModuleLoadDataEx(uint64_t *module, const void *image, unsigned n, int *options, void **values) {
	START("cuModuleLoadDataEx")
	code = loaded(module, image, dev);
	if (code && n == 2 && options[0] == 5 && options[1] == 6)
		snprintf(values[0], (size_t)(uintptr_t)values[1], "ptxas fatal: line 1: what is this\n");
	END
}

int cuFuncSetAttribute(uint64_t function, int attr, int value) {
	START("cuFuncSetAttribute")
	code = named(MODULE, function) && attr == 8 && value <= 232448 ? 0 : INVALID;
	END
}
#endif

DEF(cuModuleUnload, hipModuleUnload, (uint64_t module)) {
	START(CALLED(cuModuleUnload, hipModuleUnload))
	struct thing *t = named(MODULE, module);
	if (t) {
		free((void *)(uintptr_t)t->base);
		drop(t);
	} else {
		code = BAD_HANDLE;
	}
	END
}

// The one kernel of every module is fill(uint64_t addr, uint32_t n, uint32_t value): n words from addr.
DEF(cuModuleGetFunction, hipModuleGetFunction, (uint64_t * function, uint64_t module, const char *name)) {
	START(CALLED(cuModuleGetFunction, hipModuleGetFunction))
	*function = module;
	code = !named(MODULE, module) ? BAD_HANDLE : strcmp(name, "fill") ? NOT_FOUND : 0;
	END
}

DEF(cuModuleGetGlobal_v2, hipModuleGetGlobal, (uint64_t * addr, size_t *n, uint64_t module, const char *name)) {
	START(CALLED(cuModuleGetGlobal_v2, hipModuleGetGlobal))
	struct thing *t = named(MODULE, module);
	code = !t ? BAD_HANDLE : strcmp(name, "state") ? NOT_FOUND : 0;
	if (!code) {
		*addr = t->base;
		*n = t->size;
	}
	END
}

DEF(cuFuncGetAttribute, hipFuncGetAttribute, (int *value, int attr, uint64_t function)) {
	START(CALLED(cuFuncGetAttribute, hipFuncGetAttribute))
	*value = attr == 0 ? 1024 : 32;
	code = named(MODULE, function) ? 0 : BAD_HANDLE;
	END
}

DEF(cuLaunchKernel, hipModuleLaunchKernel,
	(uint64_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, uint64_t stream,
		void **params, void **extra)) {
	START(CALLED(cuLaunchKernel, hipModuleLaunchKernel))
	struct {
		uint64_t addr;
		uint32_t n, value;
	} args;
	struct thing *f = named(MODULE, function);
	(void)shared;
	if (!f || f->dev != dev || on(stream, dev))
		code = BAD_HANDLE;
	else if (params || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)NAME(0, 3) || *(size_t *)extra[3] != sizeof(args))
		code = INVALID;
	else if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024)
		code = INVALID;
	if (!code) {
		memcpy(&args, extra[1], sizeof(args));
		for (uint32_t i = 0; i < args.n; i++)
			((uint32_t *)(uintptr_t)args.addr)[i] = args.value;
	}
	END
}
