// SPDX-License-Identifier: MIT
//
// Calls everything of gpu.h on the fake driver of one vendor, with a context of the caller's own current, and checks after each call
// that it still is and that no error is left behind. Run under the address and undefined-behaviour sanitizers.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../gpu.h"

static struct gpu_api *api;
static int vendor;
static uint64_t mine; // what was current before
static int (*peek)(void);
static int checked;

// still checks that the thread is as it was.
static void still(const char *what) {
	uint64_t now = 0;
	struct gpu_rc rc = gpu_current(api, &now);
	if (rc.code || now != mine || (peek && peek() != 0)) {
		fprintf(stderr, "after %s: current is %llx, was %llx; last error %d\n", what, (unsigned long long)now, (unsigned long long)mine, peek ? peek() : 0);
		exit(1);
	}
	checked++;
}

static void want(int line, const char *what, struct gpu_rc rc, int code) {
	if (rc.code != code || !rc.call) {
		fprintf(stderr, "line %d: %s answers %d (%s), not %d\n", line, what, rc.code, rc.call, code);
		exit(1);
	}
	still(what);
}

#define OK(call) want(__LINE__, #call, call, 0)
#define NO(code, call) want(__LINE__, #call, call, code)

// settle waits until a stream has done all, for ten seconds at most.
static void settle(int dev, uint64_t stream) {
	struct gpu_rc rc = {"", GPU_NOT_READY};
	for (int i = 0; rc.code == GPU_NOT_READY && i < 100000; i++, usleep(100))
		rc = gpu_stream_query(api, dev, stream);
	OK(rc);
}

// dmabuf: the descriptor is of the memory, from the offset on, and closed in programs that are started.
static void dmabuf(int dev, uint64_t addr, uint64_t n) {
	int fd = -1;
	uint64_t offset = 0;
	struct gpu_info info = {0};
	OK(gpu_describe(api, dev, &info));
	if (!(info.has & GPU_HAS_DMABUF)) {
		NO(GPU_NOT_SUPPORTED, gpu_dmabuf(api, dev, addr, n, &fd, &offset));
		printf("no dma-bufs\n");
		return;
	}
	OK(gpu_dmabuf(api, dev, addr, n, &fd, &offset));
	uint64_t first = (uint64_t)lseek(fd, 0, SEEK_CUR) >> 24; // see fake_vmm.h
	unsigned char *there = mmap(NULL, offset + n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(first * 4096));
	if (there == MAP_FAILED || fcntl(fd, F_GETFD) != FD_CLOEXEC)
		abort();
	there[offset + n - 1] ^= 0xff;
	if (there[offset + n - 1] != *(unsigned char *)(uintptr_t)(addr + n - 1))
		abort();
	munmap(there, offset + n);
	close(fd);
	printf("%llu bytes at page %llu and %llu\n", (unsigned long long)n, (unsigned long long)first, (unsigned long long)offset);
	NO(GPU_INVALID_VALUE, gpu_dmabuf(api, dev, (uintptr_t)&fd, 1, &fd, &offset));
}

static void memory(int dev) {
	uint64_t a = 0, b = 0, host = 0, seen = 0, free_bytes, total;
	struct gpu_pointer p;
	char h[GPU_HANDLE], *plain = malloc(4096);
	OK(gpu_mem_info(api, dev, &free_bytes, &total));
	OK(gpu_alloc(api, dev, 4096, &a));
	OK(gpu_alloc(api, dev, 4096, &b));
	NO(GPU_OUT_OF_MEMORY, gpu_alloc(api, dev, 1ull << 40, &seen));
	OK(gpu_host_alloc(api, dev, 4096, &host, &seen));
	OK(gpu_host_register(api, dev, (uintptr_t)plain, 4096, &seen));
	NO(712, gpu_host_register(api, dev, (uintptr_t)plain, 4096, &seen));
	OK(gpu_set(api, dev, a, 7, 4096, 0));
	OK(gpu_copy(api, dev, b, a, 4096, 0));
	OK(gpu_copy(api, dev, (uintptr_t)plain, b, 4096, 0));
	settle(dev, 0);
	if (plain[4095] != 7)
		abort();
	NO(GPU_INVALID_VALUE, gpu_copy(api, dev, b, a, 8192, 0));
	OK(gpu_copy_peer(api, dev, a, dev, b, dev, 16, 0));
	settle(dev, 0);
	OK(gpu_pointer(api, a + 8, &p));
	if (p.kind != GPU_DEVICE || p.base != a || p.bytes != 4096 || p.device != dev)
		abort();
	OK(gpu_pointer(api, host + 8, &p));
	if (p.kind != GPU_HOST || p.host_addr != host + 8 || p.device_addr != host + 8)
		abort();
	OK(gpu_pointer(api, (uintptr_t)&p, &p));
	if (p.kind != GPU_UNREGISTERED || p.device != -1)
		abort();
	dmabuf(dev, a, 4096);
	dmabuf(dev, a + 100, 64);
	OK(gpu_ipc_get(api, dev, a, h));
	NO(201, gpu_ipc_open(api, dev, h, &seen)); // of this process
	NO(GPU_INVALID_VALUE, gpu_ipc_close(api, dev, a));
	OK(gpu_host_unregister(api, dev, (uintptr_t)plain));
	NO(GPU_INVALID_VALUE, gpu_host_unregister(api, dev, (uintptr_t)plain));
	OK(gpu_host_free(api, dev, host));
	OK(gpu_free(api, dev, a));
	NO(GPU_INVALID_VALUE, gpu_free(api, dev, a));
	OK(gpu_free(api, dev, b));
	free(plain);
}

static void virtual(int dev) {
	uint64_t n = 0, at = 0, m = 0, again = 0;
	int fd = -1;
	int32_t both[] = {0, 1};
	OK(gpu_granularity(api, dev, &n));
	OK(gpu_vmm_reserve(api, dev, n, 0, &at));
	OK(gpu_vmm_create(api, dev, n, &m));
	OK(gpu_vmm_export(api, dev, m, &fd));
	OK(gpu_vmm_import(api, dev, fd, &again));
	OK(gpu_vmm_map(api, dev, at, n, again));
	OK(gpu_vmm_access(api, dev, at, n, both, 2));
	NO(GPU_INVALID_VALUE, gpu_vmm_access(api, dev, at, n, both, 0));
	NO(GPU_INVALID_VALUE, gpu_vmm_access(api, dev, at, n, both, GPU_MAX_DEVICES + 1));
	memset((void *)(uintptr_t)at, 1, n);
	dmabuf(dev, at + 8192, n - 8192);
	OK(gpu_vmm_unmap(api, dev, at, n));
	OK(gpu_vmm_release(api, dev, again));
	OK(gpu_vmm_release(api, dev, m));
	NO(GPU_INVALID_VALUE, gpu_vmm_release(api, dev, m));
	OK(gpu_vmm_unreserve(api, dev, at, n));
}

static void work(int dev) {
	uint64_t s = 0, e = 0, f = 0, m = 0, fn = 0, addr = 0, n = 0, a = 0;
	int least, greatest, value;
	float ms;
	char log[GPU_LOG] = "";
	struct gpu_grid g = {{1, 1, 1}, {32, 1, 1}, 0};
	struct {
		uint64_t addr;
		uint32_t n, value;
	} args = {0, 16, 5};
	OK(gpu_priorities(api, dev, &least, &greatest));
	OK(gpu_stream_create(api, dev, greatest, &s));
	OK(gpu_stream_query(api, dev, s));
	settle(dev, 0);
	NO(400, gpu_stream_query(api, dev, s + 1));
	OK(gpu_event_create(api, dev, 1, &e));
	OK(gpu_event_create(api, dev, 0, &f));
	OK(gpu_event_record(api, dev, e, s));
	NO(400, gpu_event_record(api, 1 - dev, e, s));
	settle(dev, s);
	OK(gpu_event_record(api, dev, f, 0));
	settle(dev, 0);
	OK(gpu_event_query(api, dev, e));
	NO(400, gpu_event_elapsed(api, dev, e, f, &ms)); // f keeps no time
	OK(gpu_event_elapsed(api, dev, e, e, &ms));
	OK(gpu_stream_wait(api, 1 - dev, 0, e));
	setenv("FAKE_GPU", "cuStreamQuery=600,hipStreamQuery=600", 1);
	NO(GPU_NOT_READY, gpu_stream_query(api, dev, s));
	setenv("FAKE_GPU", "cuEventQuery=719,hipEventQuery=719", 1);
	NO(719, gpu_event_query(api, dev, e));
	unsetenv("FAKE_GPU");
	OK(gpu_module_load(api, dev, "fake", &m, log, sizeof(log)));
	NO(218, gpu_module_load(api, dev, "bad", &addr, log, sizeof(log)));
	if (vendor == GPU_CUDA && !strstr(log, "what is this"))
		abort();
	OK(gpu_module_function(api, dev, m, "fill", &fn));
	NO(500, gpu_module_function(api, dev, m, "none", &addr));
	OK(gpu_module_global(api, dev, m, "state", &addr, &n));
	NO(500, gpu_module_global(api, dev, m, "none", &addr, &n));
	OK(gpu_function_attribute(api, dev, fn, 0, &value));
	OK(gpu_function_shared(api, dev, fn, 65536));
	OK(gpu_alloc(api, dev, 64, &a));
	args.addr = a;
	OK(gpu_launch(api, dev, fn, &g, s, &args, sizeof(args)));
	NO(GPU_INVALID_VALUE, gpu_launch(api, dev, fn, &g, s, &args, 4));
	NO(GPU_INVALID_VALUE, gpu_launch(api, dev, fn, &g, s, NULL, 0));
	settle(dev, s);
	if (((uint32_t *)(uintptr_t)a)[15] != 5)
		abort();
	OK(gpu_free(api, dev, a));
	OK(gpu_module_unload(api, dev, m));
	OK(gpu_event_destroy(api, dev, e));
	OK(gpu_event_destroy(api, dev, f));
	NO(400, gpu_event_destroy(api, dev, f));
	OK(gpu_stream_destroy(api, dev, s));
}

static void devices(void) {
	int n = 0, driver = 0;
	struct gpu_info info;
	struct gpu_link link;
	OK(gpu_count(api, &n));
	for (int i = 0; i < n; i++) {
		memset(&info, 0, sizeof(info));
		OK(gpu_describe(api, i, &info));
		printf("%s %s %s %d\n", info.name, info.arch, info.bus, info.units);
	}
	memset(&link, 0, sizeof(link));
	OK(gpu_link(api, 0, 1, &link));
	if (!link.access || !link.atomics || link.kind != (vendor == GPU_CUDA ? GPU_LINK_NVLINK : GPU_LINK_XGMI))
		abort();
	OK(gpu_peer_enable(api, 0, 1));
	OK(gpu_peer_enable(api, 0, 1));
	if (gpu_versions(api, &driver) == 0 || driver == 0)
		abort();
	NO(GPU_INVALID_DEVICE, gpu_mem_info(api, GPU_MAX_DEVICES, &(uint64_t){0}, &(uint64_t){0}));
	NO(GPU_INVALID_DEVICE, gpu_mem_info(api, -1, &(uint64_t){0}, &(uint64_t){0}));
}

// unentered: a device that cannot be entered is left alone.
static void unentered(void) {
	uint64_t a = 0;
	setenv("FAKE_GPU", vendor == GPU_CUDA ? "cuCtxPushCurrent_v2=709" : "hipSetDevice=709", 1);
	NO(709, gpu_alloc(api, 1, 8, &a));
	unsetenv("FAKE_GPU");
}

// entered: where the caller has the device current already, nothing is made current.
static void entered(void *lib) {
	uint64_t a = 0, before = mine;
	void *ctx = NULL;
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*push)(void *) = (int (*)(void *))dlsym(lib, "cuCtxPushCurrent_v2");
	int (*pop)(void **) = (int (*)(void **))dlsym(lib, "cuCtxPopCurrent_v2");
	int (*set)(int) = (int (*)(int))dlsym(lib, "hipSetDevice");
	if (vendor == GPU_CUDA ? retain(&ctx, 1) || push(ctx) : set(1))
		abort();
	gpu_current(api, &mine);
	setenv("FAKE_GPU", vendor == GPU_CUDA ? "cuCtxPushCurrent_v2=709" : "hipSetDevice=709", 1);
	OK(gpu_alloc(api, 1, 8, &a));
	OK(gpu_free(api, 1, a));
	NO(709, gpu_alloc(api, 0, 8, &a));
	unsetenv("FAKE_GPU");
	if (vendor == GPU_CUDA ? pop(&ctx) : set((int)before))
		abort();
	mine = before;
}

int main(int argc, char **argv) {
	char why[512] = "";
	if (argc != 3)
		return 2;
	vendor = atoi(argv[1]);
	if (gpu_open(vendor, argv[2], &api, why, sizeof(why)) != GPU_OPEN) {
		fprintf(stderr, "%s\n", why);
		return 1;
	}
	void *lib = dlopen(argv[2], RTLD_NOW | RTLD_NOLOAD);
	peek = (int (*)(void))dlsym(lib, "hipPeekAtLastError");
	if (vendor == GPU_CUDA) {
		int (*push)(void *) = (int (*)(void *))dlsym(lib, "cuCtxPushCurrent_v2");
		static char own; // a context that is no device's
		push(&own);
	}
	gpu_current(api, &mine);
	devices();
	for (int dev = 0; dev < 2; dev++) {
		memory(dev);
		virtual(dev);
		work(dev);
	}
	unentered();
	entered(lib);
	printf("%d calls left the thread as it was\n", checked);
	free(api);
	return 0;
}
