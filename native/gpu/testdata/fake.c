// SPDX-License-Identifier: MIT
//
// A driver whose devices are host memory, for tests on machines without a GPU. Compiled as it is it has the names of libcuda;
// with FAKE_HIP, those of libamdhip64 of that version: 5, 6 or 7. It is as strict as the real ones where callers can go wrong: a call without its context, a
// stream of another device, a handle opened twice, memory freed twice are refused.
//
// The environment steers it, read at each call:
//   FAKE_GPU       "cuMemAlloc_v2=2,cuStreamQuery=600": these calls answer these codes and do nothing
//   FAKE_GPU_COUNT the number of devices, 2 if unset

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef FAKE_HIP
#define NAME(cuda, hip) hip
#define VERSION (FAKE_HIP == 5 ? 50221153 : FAKE_HIP == 6 ? 60342131 : 70125424)
#else
#define NAME(cuda, hip) cuda
#define VERSION 13000
#endif

enum { DEVICES = 8, MOST = 4096 };
enum { INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, NO_CONTEXT = 201, MAPPED = 208, BAD_PTX = 218, OLD_PTX = 222, BAD_HANDLE = 400, NOT_FOUND = 500, TWICE = 704, REGISTERED = 712 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// A thing is anything that has an owner and is destroyed once.
enum kind { NONE, MEMORY, HOST, REGISTRATION, OPENED, STREAM, EVENT, MODULE, RESERVED, PHYSICAL, MAPPING };

struct thing {
	enum kind kind;
	int dev, fd;
	uint64_t base, size, id;
	struct timespec when;
	char handle[64];
};

static struct thing things[MOST];
static uint64_t ids;

static struct thing *make(enum kind kind, int dev) {
	for (int i = 1; i < MOST; i++)
		if (things[i].kind == NONE) {
			things[i] = (struct thing){.kind = kind, .dev = dev, .fd = -1, .id = ++ids};
			return &things[i];
		}
	abort();
}

static void drop(struct thing *t) {
	if (t->fd >= 0)
		close(t->fd);
	t->kind = NONE;
}

// named finds the thing that a handle is: its index, with its id above, so that a destroyed one is not found again.
static uint64_t name_of(struct thing *t) { return t->id << 16 | (uint64_t)(t - things); }

static struct thing *named(enum kind kind, uint64_t name) {
	struct thing *t = &things[name & 0xfff];
	return (name & 0xffff) < MOST && t->kind == kind && t->id == name >> 16 ? t : NULL;
}

static struct thing *at(enum kind kind, uint64_t base) {
	for (int i = 1; i < MOST; i++)
		if (things[i].kind == kind && things[i].base == base)
			return &things[i];
	return NULL;
}

static struct thing *around(uint64_t addr) {
	for (int i = 1; i < MOST; i++)
		switch (things[i].kind) {
		case MEMORY: case HOST: case REGISTRATION: case OPENED: case MAPPING:
			if (addr >= things[i].base && addr < things[i].base + things[i].size)
				return &things[i];
			break;
		default:
			break;
		}
	return NULL;
}

static int count(void) {
	const char *n = getenv("FAKE_GPU_COUNT");
	return n ? atoi(n) : 2;
}

// told is the code that FAKE_GPU has for a call.
static int told(const char *call) {
	const char *all = getenv("FAKE_GPU");
	size_t n = strlen(call);
	for (const char *p = all; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, call, n) && p[n] == '=')
			return atoi(p + n + 1);
	return 0;
}

// What is current on a thread.
#ifdef FAKE_HIP
static _Thread_local int current;
static _Thread_local int last;
static int here(void) { return current; }
#else
static char contexts[DEVICES]; // the address of one is a primary context
static int retained[DEVICES];
static _Thread_local void *stack[64];
static _Thread_local int depth;
static int here(void) {
	void *c = depth ? stack[depth - 1] : NULL;
	return c >= (void *)contexts && c < (void *)(contexts + DEVICES) ? (int)((char *)c - contexts) : -1;
}
#endif

static int answer(int code) {
#ifdef FAKE_HIP
	if (code)
		last = code;
#endif
	return code;
}

// START begins a call that works on what is current; OUTSIDE one that does not. Both end with END, with the lock held between.
#define OUTSIDE(call)              \
	int code = told(call), dev = 0;  \
	if (code)                        \
		return answer(code);           \
	pthread_mutex_lock(&lock);
#define START(call)                \
	OUTSIDE(call)                    \
	dev = here();                    \
	if (dev < 0) {                   \
		pthread_mutex_unlock(&lock);   \
		return answer(NO_CONTEXT);     \
	}
#define END                        \
	pthread_mutex_unlock(&lock);     \
	(void)dev;                       \
	return answer(code);
#define DEF(cuda, hip, args) int NAME(cuda, hip) args
#define CALLED(cuda, hip) NAME(#cuda, #hip)

DEF(cuInit, hipInit, (unsigned flags)) {
	(void)flags;
	int code = told(CALLED(cuInit, hipInit));
	return answer(code ? code : count() == 0 ? NO_DEVICE : 0);
}

DEF(cuDriverGetVersion, hipDriverGetVersion, (int *v)) {
	*v = VERSION;
	return 0;
}

DEF(cuDeviceGetCount, hipGetDeviceCount, (int *n)) {
	*n = count();
	return answer(told(CALLED(cuDeviceGetCount, hipGetDeviceCount)));
}

DEF(cuDeviceGetName, hipDeviceGetName, (char *to, int n, int dev)) {
	snprintf(to, (size_t)n, "Fake %d", dev);
	return answer(dev < count() ? told(CALLED(cuDeviceGetName, hipDeviceGetName)) : BAD_DEVICE);
}

DEF(cuDeviceGetUuid_v2, hipDeviceGetUuid, (unsigned char *to, int dev)) {
	for (int i = 0; i < 16; i++)
		to[i] = (unsigned char)(16 * dev + i);
	return 0;
}

DEF(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *to, int n, int dev)) {
	snprintf(to, (size_t)n, "0000:%02X:00.0", 0xa0 + dev);
	return 0;
}

DEF(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t *n, int dev)) {
	(void)dev;
	*n = 1u << 30;
	return 0;
}

DEF(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *v, int attr, int dev)) {
	static const int known[][2] = {
#ifdef FAKE_HIP
		{63, 304}, {87, 64}, {23, 9}, {61, 4}, {89, FAKE_HIP > 5}, {56, 1024}, {74, 65536}, {2, 4},
#else
		{16, 132}, {10, 32}, {75, 9}, {76, 0}, {102, 1}, {103, 1}, {124, 1}, {1, 1024}, {8, 49152}, {97, 232448}, {40, 3},
#endif
	};
	(void)dev;
	*v = 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i][0] == attr)
			*v = known[i][1];
	return 0;
}

DEF(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, (int *can, int dev, int peer)) {
	*can = dev != peer && dev < 2 && peer < 2; // a third device is out of reach
	return answer(dev < count() && peer < count() ? 0 : BAD_DEVICE);
}

DEF(cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute, (int *v, int attr, int dev, int peer)) {
	(void)dev, (void)peer;
	*v = attr == NAME(3, 2);
	return 0;
}

DEF(cuMemGetInfo_v2, hipMemGetInfo, (size_t *available, size_t *total)) {
	START(CALLED(cuMemGetInfo_v2, hipMemGetInfo))
	*total = 1u << 30;
	*available = *total;
	for (int i = 1; i < MOST; i++)
		if (things[i].kind == MEMORY && things[i].dev == dev)
			*available -= things[i].size;
	END
}

#include "fake_memory.h"
#include "fake_work.h"
#include "fake_vmm.h"

static int peered[DEVICES][DEVICES];

static int enabled(int dev, int peer) {
	if (peer < 0 || peer >= count() || peer == dev)
		return BAD_DEVICE;
	if (dev > 1 || peer > 1)
		return 217;
	if (peered[dev][peer]++)
		return TWICE;
	return 0;
}

#ifdef FAKE_HIP
#include "fake_hip.h"
#else
#include "fake_cuda.h"
#endif
