// SPDX-License-Identifier: MIT
//
// Threads that use the emulated driver at once, each with streams of its own and one of all, and look at every byte. Compiled with it
// under a sanitizer.

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **ctx, int dev);
int cuCtxPushCurrent_v2(void *ctx);
int cuMemAlloc_v2(uint64_t *addr, size_t n);
int cuMemFree_v2(uint64_t addr);
int cuMemHostAlloc(uint64_t *host, size_t n, unsigned flags);
int cuMemFreeHost(uint64_t host);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t n, uint64_t stream);
int cuMemsetD8Async(uint64_t dst, unsigned char value, size_t n, uint64_t stream);
int cuStreamCreateWithPriority(uint64_t *stream, unsigned flags, int priority);
int cuStreamDestroy_v2(uint64_t stream);
int cuStreamQuery(uint64_t stream);
int cuStreamWaitEvent(uint64_t stream, uint64_t event, unsigned flags);
int cuEventCreate(uint64_t *event, unsigned flags);
int cuEventDestroy_v2(uint64_t event);
int cuEventRecord(uint64_t event, uint64_t stream);
int cuEventQuery(uint64_t event);
int cuModuleLoadDataEx(uint64_t *module, const void *image, unsigned n, int *options, void **values);
int cuModuleUnload(uint64_t module);
int cuModuleGetFunction(uint64_t *function, uint64_t module, const char *name);
int cuLaunchKernel(uint64_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
	uint64_t stream, void **params, void **extra);
void fake_gpu_hold(int on);

enum { THREADS = 4, ROUNDS = 40, BYTES = 5000, NOT_READY = 600 };

#define OK(call)                                                                \
	do {                                                                          \
		int code_ = call;                                                           \
		if (code_) {                                                                \
			fprintf(stderr, "line %d: %s answers %d\n", __LINE__, #call, code_);      \
			exit(1);                                                                  \
		}                                                                           \
	} while (0)

static void await(int (*query)(uint64_t), uint64_t of) {
	int code = NOT_READY;
	for (int i = 0; code == NOT_READY && i < 1000000; i++, usleep(20))
		code = query(of);
	OK(code);
}

static void fill(uint64_t module, uint64_t addr, uint32_t n, uint32_t value, uint64_t stream) {
	struct {
		uint64_t addr;
		uint32_t n, value;
	} args = {addr, n, value};
	uint64_t f;
	size_t size = sizeof(args);
	void *extra[] = {(void *)1, &args, (void *)2, &size, NULL};
	OK(cuModuleGetFunction(&f, module, "fill"));
	OK(cuLaunchKernel(f, 2, 1, 1, 64, 1, 1, 0, stream, NULL, extra));
}

// rounds writes on one stream and reads on another, ordered by an event alone.
static void rounds(int me, uint64_t module) {
	uint64_t a, host, writer, reader, e;
	OK(cuMemAlloc_v2(&a, BYTES));
	OK(cuMemHostAlloc(&host, BYTES, 3));
	OK(cuStreamCreateWithPriority(&writer, 1, 0));
	OK(cuStreamCreateWithPriority(&reader, 1, 0));
	OK(cuEventCreate(&e, 2));
	for (int i = 0; i < ROUNDS; i++) {
		unsigned char v = (unsigned char)(i * THREADS + me);
		if (i % 2)
			OK(cuMemsetD8Async(a, v, BYTES, writer));
		else
			fill(module, a, BYTES / 4, v * 0x01010101u, writer);
		OK(cuEventRecord(e, writer));
		OK(cuStreamWaitEvent(reader, e, 0));
		OK(cuMemcpyAsync(host, a, BYTES, reader));
		OK(cuEventRecord(e, reader));
		await(cuEventQuery, e);
		for (int b = 0; b < BYTES; b++)
			if (((unsigned char *)(uintptr_t)host)[b] != v) {
				fprintf(stderr, "thread %d, round %d: byte %d is %d\n", me, i, b, ((unsigned char *)(uintptr_t)host)[b]);
				exit(1);
			}
	}
	await(cuStreamQuery, writer);
	OK(cuStreamDestroy_v2(writer));
	OK(cuStreamDestroy_v2(reader));
	OK(cuEventDestroy_v2(e));
	OK(cuMemFree_v2(a));
	OK(cuMemFreeHost(host));
}

static void *run(void *arg) {
	void *ctx;
	uint64_t module;
	OK(cuDevicePrimaryCtxRetain(&ctx, (int)(uintptr_t)arg % 2));
	OK(cuCtxPushCurrent_v2(ctx));
	OK(cuModuleLoadDataEx(&module, "fake", 0, NULL, NULL));
	for (int again = 0; again < 3; again++)
		rounds((int)(uintptr_t)arg, module);
	OK(cuModuleUnload(module));
	return NULL;
}

int main(void) {
	pthread_t threads[THREADS];
	OK(cuInit(0));
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
			return 1;
	for (int i = 0; i < 20; i++) {
		fake_gpu_hold(1);
		usleep(500);
		fake_gpu_hold(0);
		usleep(500);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	puts("every byte was right");
	return 0;
}
