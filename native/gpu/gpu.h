// SPDX-License-Identifier: MIT
//
// The flat C side of package gpu: fixed-width numbers in, a code out. Nothing of a vendor's header crosses it.

#ifndef MORI_GPU_H
#define MORI_GPU_H

#include <stddef.h>
#include <stdint.h>

enum { GPU_CUDA = 1, GPU_HIP = 2 };
enum { GPU_MAX_DEVICES = 64, GPU_HANDLE = 64, GPU_LOG = 2048 };

// Answers of gpu_open.
enum { GPU_OPEN = 0, GPU_ABSENT, GPU_UNCLEAR };

// Codes that both vendors have under one number (cuda.h CUDA_ERROR_*, hip_runtime_api.h hipError*).
enum {
	GPU_OK = 0,
	GPU_INVALID_VALUE = 1,
	GPU_OUT_OF_MEMORY = 2,
	GPU_NO_DEVICE = 100,
	GPU_INVALID_DEVICE = 101,
	GPU_INVALID_CONTEXT = 201,
	GPU_NOT_READY = 600,
	GPU_PEER_ALREADY_ENABLED = 704,
	GPU_NOT_SUPPORTED = 801,
};

// Bits of gpu_info.has.
enum {
	GPU_HAS_HOST_ATOMICS = 1,
	GPU_HAS_VMM = 2,
	GPU_HAS_VMM_FD = 4,
	GPU_HAS_FABRIC = 8,
	GPU_HAS_DMABUF = 16,
	GPU_HAS_RDMA = 32,
	GPU_HAS_VMM_RDMA = 64,
	GPU_HAS_INTEGRATED = 128,
};

// Kinds of memory, and bits of gpu_pointer.can.
enum { GPU_UNREGISTERED = 0, GPU_HOST, GPU_DEVICE, GPU_MANAGED };
enum { GPU_CAN_IPC = 1, GPU_CAN_FD = 2, GPU_CAN_RDMA = 4 };

// Kinds of links.
enum { GPU_LINK_NONE = 0, GPU_LINK_PCIE, GPU_LINK_NVLINK, GPU_LINK_XGMI };

struct gpu_api;

// What a call answers: the vendor's code, and the vendor's name of the call that gave it.
struct gpu_rc {
	const char *call;
	int code;
};

struct gpu_info {
	char name[256], bus[64], arch[64];
	uint8_t uuid[16];
	uint64_t bytes;
	int32_t major, minor, units, warp, threads, shared, shared_most, clock_khz, copy_engines, l2_bytes;
	uint32_t has;
};

struct gpu_pointer {
	uint64_t base, bytes;             // of the allocation, 0 if not known
	uint64_t device_addr, host_addr;  // under which either side sees it, 0 = not at all
	int32_t kind, device;             // device is -1 for memory of none
	uint32_t can;
};

struct gpu_link {
	int32_t access, atomics, rank, kind, hops;
};

struct gpu_grid {
	uint32_t grid[3], block[3];
	uint32_t shared;
};

int gpu_open(int vendor, const char *path, struct gpu_api **out, char *why, size_t n);
const char *gpu_symbol(int vendor, size_t i, int *needed);
const char *gpu_path(const struct gpu_api *a);
int gpu_versions(struct gpu_api *a, int *driver);
void gpu_error(struct gpu_api *a, int code, const char **name, const char **text);
struct gpu_rc gpu_current(struct gpu_api *a, uint64_t *current);
struct gpu_rc gpu_current_device(struct gpu_api *a, int *dev);

struct gpu_rc gpu_count(struct gpu_api *a, int *n);
struct gpu_rc gpu_describe(struct gpu_api *a, int dev, struct gpu_info *info);
struct gpu_rc gpu_link(struct gpu_api *a, int dev, int peer, struct gpu_link *l);
struct gpu_rc gpu_peer_enable(struct gpu_api *a, int dev, int peer);
struct gpu_rc gpu_mem_info(struct gpu_api *a, int dev, uint64_t *available, uint64_t *total);

struct gpu_rc gpu_alloc(struct gpu_api *a, int dev, uint64_t n, uint64_t *addr);
struct gpu_rc gpu_free(struct gpu_api *a, int dev, uint64_t addr);
struct gpu_rc gpu_host_alloc(struct gpu_api *a, int dev, uint64_t n, uint64_t *host, uint64_t *device);
struct gpu_rc gpu_host_free(struct gpu_api *a, int dev, uint64_t host);
struct gpu_rc gpu_host_register(struct gpu_api *a, int dev, uint64_t host, uint64_t n, uint64_t *device);
struct gpu_rc gpu_host_unregister(struct gpu_api *a, int dev, uint64_t host);
struct gpu_rc gpu_pointer(struct gpu_api *a, uint64_t addr, struct gpu_pointer *p);
struct gpu_rc gpu_ipc_get(struct gpu_api *a, int dev, uint64_t addr, void *handle);
struct gpu_rc gpu_ipc_open(struct gpu_api *a, int dev, const void *handle, uint64_t *addr);
struct gpu_rc gpu_ipc_close(struct gpu_api *a, int dev, uint64_t addr);

struct gpu_rc gpu_granularity(struct gpu_api *a, int dev, uint64_t *n);
struct gpu_rc gpu_vmm_reserve(struct gpu_api *a, int dev, uint64_t n, uint64_t align, uint64_t *addr);
struct gpu_rc gpu_vmm_unreserve(struct gpu_api *a, int dev, uint64_t addr, uint64_t n);
struct gpu_rc gpu_vmm_create(struct gpu_api *a, int dev, uint64_t n, uint64_t *handle);
struct gpu_rc gpu_vmm_release(struct gpu_api *a, int dev, uint64_t handle);
struct gpu_rc gpu_vmm_map(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, uint64_t handle);
struct gpu_rc gpu_vmm_unmap(struct gpu_api *a, int dev, uint64_t addr, uint64_t n);
struct gpu_rc gpu_vmm_access(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, const int32_t *devices, int count);
struct gpu_rc gpu_vmm_export(struct gpu_api *a, int dev, uint64_t handle, int *fd);
struct gpu_rc gpu_vmm_import(struct gpu_api *a, int dev, int fd, uint64_t *handle);
struct gpu_rc gpu_dmabuf(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, int *fd, uint64_t *offset);

struct gpu_rc gpu_copy(struct gpu_api *a, int dev, uint64_t dst, uint64_t src, uint64_t n, uint64_t stream);
struct gpu_rc gpu_copy_peer(struct gpu_api *a, int dev, uint64_t dst, int dst_dev, uint64_t src, int src_dev, uint64_t n, uint64_t stream);
struct gpu_rc gpu_set(struct gpu_api *a, int dev, uint64_t dst, uint8_t value, uint64_t n, uint64_t stream);

struct gpu_rc gpu_priorities(struct gpu_api *a, int dev, int *least, int *greatest);
struct gpu_rc gpu_stream_create(struct gpu_api *a, int dev, int priority, uint64_t *stream);
struct gpu_rc gpu_stream_destroy(struct gpu_api *a, int dev, uint64_t stream);
struct gpu_rc gpu_stream_query(struct gpu_api *a, int dev, uint64_t stream);
struct gpu_rc gpu_stream_wait(struct gpu_api *a, int dev, uint64_t stream, uint64_t event);
struct gpu_rc gpu_event_create(struct gpu_api *a, int dev, int timing, uint64_t *event);
struct gpu_rc gpu_event_destroy(struct gpu_api *a, int dev, uint64_t event);
struct gpu_rc gpu_event_record(struct gpu_api *a, int dev, uint64_t event, uint64_t stream);
struct gpu_rc gpu_event_query(struct gpu_api *a, int dev, uint64_t event);
struct gpu_rc gpu_event_elapsed(struct gpu_api *a, int dev, uint64_t from, uint64_t to, float *ms);

struct gpu_rc gpu_module_load(struct gpu_api *a, int dev, const void *image, uint64_t *module, char *log, size_t n);
struct gpu_rc gpu_module_unload(struct gpu_api *a, int dev, uint64_t module);
struct gpu_rc gpu_module_function(struct gpu_api *a, int dev, uint64_t module, const char *name, uint64_t *function);
struct gpu_rc gpu_module_global(struct gpu_api *a, int dev, uint64_t module, const char *name, uint64_t *addr, uint64_t *n);
struct gpu_rc gpu_function_attribute(struct gpu_api *a, int dev, uint64_t function, int attribute, int *value);
struct gpu_rc gpu_function_shared(struct gpu_api *a, int dev, uint64_t function, int bytes);
struct gpu_rc gpu_launch(struct gpu_api *a, int dev, uint64_t function, const struct gpu_grid *g, uint64_t stream, void *args, size_t n);

#endif
