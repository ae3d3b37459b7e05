// SPDX-License-Identifier: MIT
//
// Devices, memory and what other processes map. Each call enters its device, asks the driver, and leaves the thread as it was.

#include <fcntl.h>

#include "table.h"

#include "within.h"

struct gpu_rc gpu_count(struct gpu_api *a, int *n) { return GPU_ASK(a, count, n); }

// gpu_describe enters nothing, so that looking at devices makes no context on them.
struct gpu_rc gpu_describe(struct gpu_api *a, int dev, struct gpu_info *info) {
	size_t total = 0;
	struct gpu_rc rc = GPU_ASK(a, device_name, info->name, sizeof(info->name) - 1, dev);
	if (!rc.code)
		rc = GPU_ASK(a, device_uuid, info->uuid, dev);
	if (!rc.code)
		rc = GPU_ASK(a, device_bus, info->bus, sizeof(info->bus) - 1, dev);
	if (!rc.code)
		rc = GPU_ASK(a, device_total, &total, dev);
	info->bytes = total;
	if (!rc.code)
		a->v->describe(a, dev, info);
	return rc;
}

struct gpu_rc gpu_link(struct gpu_api *a, int dev, int peer, struct gpu_link *l) {
	struct gpu_rc rc = GPU_ASK(a, can_access, &l->access, dev, peer);
	if (rc.code)
		return rc;
	// Drivers answer these for pairs in reach only.
	if (!l->access || GPU_ASK(a, p2p_attr, &l->rank, a->v->p2p_rank, dev, peer).code)
		l->rank = 0;
	if (!l->access || GPU_ASK(a, p2p_attr, &l->atomics, a->v->p2p_atomics, dev, peer).code)
		l->atomics = 0;
	a->v->link(a, dev, peer, l);
	return rc;
}

struct gpu_rc gpu_peer_enable(struct gpu_api *a, int dev, int peer) {
	struct gpu_rc rc = WITHIN(a, dev, a->v->peer_enable(a, peer));
	if (rc.code == GPU_PEER_ALREADY_ENABLED)
		rc.code = 0;
	return rc;
}

struct gpu_rc gpu_mem_info(struct gpu_api *a, int dev, uint64_t *available, uint64_t *total) {
	size_t have = 0, all = 0;
	struct gpu_rc rc = WITHIN(a, dev, GPU_ASK(a, mem_info, &have, &all));
	*available = have;
	*total = all;
	return rc;
}

struct gpu_rc gpu_alloc(struct gpu_api *a, int dev, uint64_t n, uint64_t *addr) { return WITHIN(a, dev, GPU_ASK(a, alloc, addr, n)); }

struct gpu_rc gpu_free(struct gpu_api *a, int dev, uint64_t addr) { return WITHIN(a, dev, GPU_ASK(a, free, addr)); }

enum { PORTABLE_MAPPED = 3 }; // CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP, and for registering; HIP has the same numbers

static struct gpu_rc host_alloc(struct gpu_api *a, uint64_t n, uint64_t *host, uint64_t *device) {
	struct gpu_rc rc = GPU_ASK(a, host_alloc, host, n, PORTABLE_MAPPED);
	if (rc.code)
		return rc;
	rc = GPU_ASK(a, host_device, device, *host, 0);
	if (rc.code)
		GPU_ASK(a, host_free, *host);
	return rc;
}

struct gpu_rc gpu_host_alloc(struct gpu_api *a, int dev, uint64_t n, uint64_t *host, uint64_t *device) {
	return WITHIN(a, dev, host_alloc(a, n, host, device));
}

struct gpu_rc gpu_host_free(struct gpu_api *a, int dev, uint64_t host) { return WITHIN(a, dev, GPU_ASK(a, host_free, host)); }

static struct gpu_rc host_register(struct gpu_api *a, uint64_t host, uint64_t n, uint64_t *device) {
	struct gpu_rc rc = GPU_ASK(a, host_register, host, n, PORTABLE_MAPPED);
	if (rc.code)
		return rc;
	rc = GPU_ASK(a, host_device, device, host, 0);
	if (rc.code)
		GPU_ASK(a, host_unregister, host);
	return rc;
}

struct gpu_rc gpu_host_register(struct gpu_api *a, int dev, uint64_t host, uint64_t n, uint64_t *device) {
	return WITHIN(a, dev, host_register(a, host, n, device));
}

struct gpu_rc gpu_host_unregister(struct gpu_api *a, int dev, uint64_t host) { return WITHIN(a, dev, GPU_ASK(a, host_unregister, host)); }

// gpu_pointer makes no context: the address may be of any device, and of none.
struct gpu_rc gpu_pointer(struct gpu_api *a, uint64_t addr, struct gpu_pointer *p) {
	*p = (struct gpu_pointer){.device = -1};
	return a->v->pointer(a, addr, p);
}

struct gpu_rc gpu_ipc_get(struct gpu_api *a, int dev, uint64_t addr, void *handle) { return WITHIN(a, dev, GPU_ASK(a, ipc_get, handle, addr)); }

struct gpu_rc gpu_ipc_open(struct gpu_api *a, int dev, const void *handle, uint64_t *addr) {
	return WITHIN(a, dev, GPU_ASK(a, ipc_open, addr, *(const struct gpu_ipc *)handle, a->v->ipc_flags(a)));
}

struct gpu_rc gpu_ipc_close(struct gpu_api *a, int dev, uint64_t addr) { return WITHIN(a, dev, GPU_ASK(a, ipc_close, addr)); }

enum { PINNED = 1, ON_DEVICE = 1, DESCRIPTOR = 1, READ_WRITE = 3, RECOMMENDED = 1 }; // CU_MEM_*, hipMem*: the same numbers

static struct gpu_prop prop(struct gpu_api *a, int dev) {
	int rdma = 0;
	if (a->v->vendor == GPU_CUDA && a->device_attr(&rdma, 110, dev)) // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
		rdma = 0;
	return (struct gpu_prop){.type = PINNED, .handle_types = DESCRIPTOR, .location_type = ON_DEVICE, .location_id = dev, .rdma = rdma != 0};
}

struct gpu_rc gpu_granularity(struct gpu_api *a, int dev, uint64_t *n) {
	struct gpu_prop p = prop(a, dev);
	size_t size = 0;
	struct gpu_rc rc = WITHIN(a, dev, GPU_ASK(a, granularity, &size, &p, RECOMMENDED));
	*n = size;
	return rc;
}

struct gpu_rc gpu_vmm_reserve(struct gpu_api *a, int dev, uint64_t n, uint64_t align, uint64_t *addr) {
	return WITHIN(a, dev, GPU_ASK(a, vmm_reserve, addr, n, align, 0, 0));
}

struct gpu_rc gpu_vmm_unreserve(struct gpu_api *a, int dev, uint64_t addr, uint64_t n) {
	return WITHIN(a, dev, GPU_ASK(a, vmm_unreserve, addr, n));
}

struct gpu_rc gpu_vmm_create(struct gpu_api *a, int dev, uint64_t n, uint64_t *handle) {
	struct gpu_prop p = prop(a, dev);
	return WITHIN(a, dev, GPU_ASK(a, vmm_create, handle, n, &p, 0));
}

struct gpu_rc gpu_vmm_release(struct gpu_api *a, int dev, uint64_t handle) { return WITHIN(a, dev, GPU_ASK(a, vmm_release, handle)); }

struct gpu_rc gpu_vmm_map(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, uint64_t handle) {
	return WITHIN(a, dev, GPU_ASK(a, vmm_map, addr, n, 0, handle, 0));
}

struct gpu_rc gpu_vmm_unmap(struct gpu_api *a, int dev, uint64_t addr, uint64_t n) { return WITHIN(a, dev, GPU_ASK(a, vmm_unmap, addr, n)); }

struct gpu_rc gpu_vmm_access(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, const int32_t *devices, int count) {
	struct gpu_access desc[GPU_MAX_DEVICES];
	if (count < 1 || count > GPU_MAX_DEVICES)
		return (struct gpu_rc){gpu_shared_name(a, GPU_N_vmm_access), GPU_INVALID_VALUE};
	for (int i = 0; i < count; i++)
		desc[i] = (struct gpu_access){ON_DEVICE, devices[i], READ_WRITE};
	return WITHIN(a, dev, GPU_ASK(a, vmm_access, addr, n, desc, (size_t)count));
}

struct gpu_rc gpu_vmm_export(struct gpu_api *a, int dev, uint64_t handle, int *fd) {
	return WITHIN(a, dev, GPU_ASK(a, vmm_export, fd, handle, DESCRIPTOR, 0));
}

struct gpu_rc gpu_vmm_import(struct gpu_api *a, int dev, int fd, uint64_t *handle) { return WITHIN(a, dev, a->v->vmm_import(a, fd, handle)); }

// Drivers do not all have the descriptor closed in programs that this one starts.
struct gpu_rc gpu_dmabuf(struct gpu_api *a, int dev, uint64_t addr, uint64_t n, int *fd, uint64_t *offset) {
	*fd = -1;
	*offset = 0;
	struct gpu_rc rc = WITHIN(a, dev, a->v->dmabuf(a, addr, n, fd, offset));
	if (!rc.code)
		fcntl(*fd, F_SETFD, FD_CLOEXEC);
	return rc;
}
