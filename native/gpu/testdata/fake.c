// SPDX-License-Identifier: MIT
//
// A driver whose devices are host memory and threads, for tests on machines without a GPU. Compiled as it is it has the names of
// libcuda; with FAKE_HIP, those of libamdhip64 of that version: 5, 6 or 7. It is as strict as the real ones where callers can go
// wrong: a call without its context, a stream of another device, a handle opened twice, memory freed twice are refused. Where
// the real ones leave it open what happens, it ends the process and says why: memory that queued work still names was freed.
//
// The environment steers it, read at each call:
//   FAKE_GPU         "cuMemAlloc_v2=2,cuStreamQuery=600": these calls, or those that HIP has for them, answer these codes and do nothing; "work=719": what is queued
//                    now fails with this code when its turn comes, and the device is lost
//   FAKE_GPU_COUNT   the number of devices, 2 if unset
//   FAKE_GPU_BYTES   the memory of each, 1 GiB if unset; what other processes have is not counted
//   FAKE_GPU_SEED    unless 0 or unset, work begins after random delays that follow from this number
//   FAKE_GPU_IDLE    1: launches are looked at, and then forgotten, to measure what a call costs beside its kernel
//   FAKE_GPU_LATE    milliseconds by which the last lane of each kernel begins later than the others
//   FAKE_GPU_DRIVER  the driver's version, by which PTX is too new
//   FAKE_GPU_ARCH    90 if unset: 80 is compute capability 8.0
//
// One lock protects everything but the bytes of memory. The files that it includes are its parts.

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake_kernels.h"

#ifdef FAKE_HIP
#define NAME(cuda, hip) hip
#define VERSION (FAKE_HIP == 5 ? 50221153 : FAKE_HIP == 6 ? 60342131 : 70125424)
#else
#define NAME(cuda, hip) cuda
#define VERSION 13000
#endif

enum { DEVICES = 8, MOST = 4096 };
enum {
	INVALID = 1, NO_MEMORY = 2, FORKED = 3, NO_DEVICE = 100, BAD_DEVICE = 101, NO_CONTEXT = 201, MAPPED = 208, BAD_PTX = 218,
	NO_PEER = 217, OLD_PTX = 222, BAD_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, TWICE = 704, REGISTERED = 712, FAILED = 719, NOT_SUPPORTED = 801,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; // some work has ended, or may go on

// A thing is anything that has an owner and is destroyed once.
enum kind { NONE, MEMORY, HOST, REGISTRATION, OPENED, STREAM, EVENT, MODULE, FUNCTION, VARIABLE, RESERVED, PHYSICAL, MAPPING };

struct thing {
	enum kind kind;
	int dev, fd;
	uint64_t base, size, id;
	char handle[64]; // of OPENED
	void *object;    // of STREAM, EVENT, MODULE, FUNCTION
};

static struct thing things[MOST];
static int most; // none is used from there on
static uint64_t ids;
static int broken[DEVICES]; // the code that all calls answer after a kernel has failed
static int inited, forked;

static void after_fork(void) { forked = inited; }

__attribute__((constructor)) static void loaded_library(void) { pthread_atfork(NULL, NULL, after_fork); }

// misuse ends the process: the caller did what a real device would answer by wrong bytes or a fault, if at all.
__attribute__((noreturn, format(printf, 1, 2))) static void misuse(const char *format, ...) {
	va_list args;
	va_start(args, format);
	fprintf(stderr, "emulated GPU: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	abort();
}

static struct thing *make(enum kind kind, int dev) {
	for (int i = 1; i < MOST; i++)
		if (things[i].kind == NONE) {
			things[i] = (struct thing){.kind = kind, .dev = dev, .fd = -1, .id = ++ids};
			most = i >= most ? i + 1 : most;
			return &things[i];
		}
	misuse("more than %d objects at once", MOST);
}

static void drop(struct thing *t) {
	if (t->fd >= 0)
		close(t->fd);
	t->kind = NONE;
	while (most > 1 && things[most - 1].kind == NONE)
		most--;
}

// name_of is the handle of a thing: its index, with its id above, so that a destroyed one is not found again.
static uint64_t name_of(struct thing *t) { return t->id << 16 | (uint64_t)(t - things); }

static struct thing *named(enum kind kind, uint64_t name) {
	struct thing *t = &things[name & 0xfff];
	return (name & 0xffff) < MOST && t->kind == kind && t->id == name >> 16 ? t : NULL;
}

static struct thing *at(enum kind kind, uint64_t base) {
	for (int i = 1; i < most; i++)
		if (things[i].kind == kind && things[i].base == base)
			return &things[i];
	return NULL;
}

static struct thing *around(uint64_t addr) {
	for (int i = 1; i < most; i++)
		switch (things[i].kind) {
		case MEMORY: case HOST: case REGISTRATION: case OPENED: case MAPPING: case VARIABLE:
			if (addr - things[i].base < things[i].size)
				return &things[i];
			break;
		default:
			break;
		}
	return NULL;
}

static uint64_t setting(const char *name, uint64_t otherwise) {
	const char *n = getenv(name);
	return n && *n ? strtoull(n, NULL, 0) : otherwise;
}

static int count(void) {
	uint64_t n = setting("FAKE_GPU_COUNT", 2);
	return n < DEVICES ? (int)n : DEVICES;
}

static uint64_t bytes(void) { return setting("FAKE_GPU_BYTES", 1u << 30); }

// told_of is the code that FAKE_GPU has for a call of this name.
static int told_of(const char *call) {
	const char *all = getenv("FAKE_GPU");
	size_t n = strlen(call);
	for (const char *p = all; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, call, n) && p[n] == '=')
			return atoi(p + n + 1);
	return 0;
}

// told is the code for a call: HIP's go by CUDA's names, too, which follow theirs behind a 0.
static int told(const char *call) {
	int code = told_of(call);
	return NAME(code, code ? code : told_of(call + strlen(call) + 1));
}

// What is current on a thread.
#ifdef FAKE_HIP
static _Thread_local int current;
static _Thread_local int last;
static int here(void) { return current; }
#else
static char contexts[DEVICES]; // the address of one is a primary context
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
#define OUTSIDE(call)                        \
	int code = told(call), dev = 0;            \
	if (!code && forked)                       \
		code = FORKED;                           \
	if (code)                                  \
		return answer(code);                     \
	pthread_mutex_lock(&lock);
#define START(call)                          \
	OUTSIDE(call)                              \
	dev = here();                              \
	if (dev < 0 || broken[dev]) {              \
		code = dev < 0 ? NO_CONTEXT : broken[dev]; \
		pthread_mutex_unlock(&lock);             \
		return answer(code);                     \
	}
#define END                                  \
	pthread_mutex_unlock(&lock);               \
	(void)dev;                                 \
	return answer(code);
#define DEF(cuda, hip, args) __attribute__((visibility("default"))) int NAME(cuda, hip) args
#define CALLED(cuda, hip) NAME(#cuda, #hip "\0" #cuda)

#include "fake_device.h"
#include "fake_stream.h"
#include "fake_memory.h"
#include "fake_work.h"
#include "fake_module.h"
#include "fake_vmm.h"

static int peered[DEVICES][DEVICES];

static int enabled(int dev, int peer) {
	if (peer < 0 || peer >= count() || peer == dev)
		return BAD_DEVICE;
	if (!reaches(dev, peer))
		return NO_PEER;
	if (peered[dev][peer]++)
		return TWICE;
	return 0;
}

#ifdef FAKE_HIP
#include "fake_hip.h"
#else
#include "fake_cuda.h"
#endif
