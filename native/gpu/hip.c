// SPDX-License-Identifier: MIT
//
// What is HIP's own, of the runtimes 5 to 7. Numbers are hip_runtime_api.h's; the comment at each says its name there.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "table.h"

static const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so", NULL};

enum { MAJOR = 10000000, MINOR = 100000 }; // of hipRuntimeGetVersion

// hipDeviceProp_t grew in version 6, which has both layouts under two names. Only the architecture's name is read.
enum { PROP_ROOM = 4096, ARCH_AT = 396, ARCH_AT_R0600 = 1160, ARCH_LEN = 256 };

// HIP has a current device for each thread, and keeps the last error of a thread for the next query: both are given back as they were.
static struct gpu_rc enter(struct gpu_api *a, int dev, struct gpu_saved *saved) {
	int code = a->hip.get_device(&saved->device);
	if (code)
		return gpu_answer(a, "hipGetDevice", code);
	if (saved->device != dev)
		code = a->hip.set_device(dev);
	return gpu_answer(a, "hipSetDevice", code);
}

static void leave(struct gpu_api *a, int dev, const struct gpu_saved *saved) {
	if (saved->device != dev)
		a->hip.set_device(saved->device);
}

// failed takes the error out of the thread, where PyTorch would find it after its next launch.
static int failed(struct gpu_api *a, int code) {
	a->hip.last_error();
	return code;
}

static void error(struct gpu_api *a, int code, const char **name, const char **text) {
	*name = a->hip.error_name(code);
	*text = a->hip.error_text(code);
	if (!*name)
		*name = "unknown error";
	if (!*text)
		*text = "the runtime has no text for it";
}

static struct gpu_rc current(struct gpu_api *a, uint64_t *current) {
	int dev = 0, code = a->hip.get_device(&dev);
	*current = (uint64_t)dev;
	return gpu_answer(a, "hipGetDevice", code);
}

static struct gpu_rc current_device(struct gpu_api *a, int *dev) { return gpu_answer(a, "hipGetDevice", a->hip.get_device(dev)); }

static void versions(struct gpu_api *a) {
	if (a->driver_version(&a->driver))
		a->driver = 0;
	if (a->hip.runtime_version(&a->runtime))
		a->runtime = 0;
}

static int attr(struct gpu_api *a, int dev, int which) {
	int value = 0;
	return gpu_answer(a, "hipDeviceGetAttribute", a->device_attr(&value, which, dev)).code ? 0 : value;
}

static void arch(struct gpu_api *a, int dev, struct gpu_info *info) {
	char props[PROP_ROOM] = {0};
	int new = a->hip.properties_r0600 != NULL;
	int code = new ? a->hip.properties_r0600(props, dev) : a->hip.properties(props, dev);
	const char *name = props + (new ? ARCH_AT_R0600 : ARCH_AT);
	if (gpu_answer(a, "hipGetDeviceProperties", code).code)
		return;
	// "gfx942:sramecc+:xnack-": the features are not part of the name.
	size_t n = strnlen(name, ARCH_LEN);
	const char *colon = memchr(name, ':', n);
	snprintf(info->arch, sizeof(info->arch), "%.*s", (int)(colon ? colon - name : (long)n), name);
}

static void describe(struct gpu_api *a, int dev, struct gpu_info *info) {
	if (attr(a, dev, 15)) // hipDeviceAttributeHostNativeAtomicSupported
		info->has |= GPU_HAS_HOST_ATOMICS;
	if (attr(a, dev, 16)) // hipDeviceAttributeIntegrated
		info->has |= GPU_HAS_INTEGRATED;
	if (attr(a, dev, 89) && a->vmm_create) // hipDeviceAttributeVirtualMemoryManagementSupported, unknown to version 5
		info->has |= GPU_HAS_VMM | GPU_HAS_VMM_FD;
	if (a->hip.hsa_dmabuf || a->range_handle)
		info->has |= GPU_HAS_DMABUF;
	info->copy_engines = attr(a, dev, 2);  // hipDeviceAttributeAsyncEngineCount
	info->clock_khz = attr(a, dev, 5);     // hipDeviceAttributeClockRate
	info->l2_bytes = attr(a, dev, 19);     // hipDeviceAttributeL2CacheSize
	info->major = attr(a, dev, 23);        // hipDeviceAttributeComputeCapabilityMajor
	info->threads = attr(a, dev, 56);      // hipDeviceAttributeMaxThreadsPerBlock
	info->minor = attr(a, dev, 61);        // hipDeviceAttributeComputeCapabilityMinor
	info->units = attr(a, dev, 63);        // hipDeviceAttributeMultiprocessorCount
	info->shared = attr(a, dev, 74);       // hipDeviceAttributeMaxSharedMemoryPerBlock
	info->shared_most = info->shared;
	info->warp = attr(a, dev, 87);         // hipDeviceAttributeWarpSize
	arch(a, dev, info);
}

static void link_of(struct gpu_api *a, int dev, int peer, struct gpu_link *l) {
	uint32_t type = 0, hops = 0;
	if (l->access)
		l->kind = GPU_LINK_PCIE;
	if (!a->hip.link || gpu_answer(a, "hipExtGetLinkTypeAndHopCount", a->hip.link(dev, peer, &type, &hops)).code)
		return;
	if (type == 4) // HSA_AMD_LINK_INFO_TYPE_XGMI
		l->kind = GPU_LINK_XGMI;
	l->hops = (int32_t)hops;
}

// hip_runtime_api.h hipPointerAttribute_t.
struct attributes {
	int type, device;
	uint64_t device_addr, host_addr;
	int managed;
	unsigned flags;
};

// kind translates hipMemoryType, whose numbers changed in version 6.
static int kind(const struct gpu_api *a, const struct attributes *at) {
	static const int old[] = {GPU_HOST, GPU_DEVICE, GPU_DEVICE, GPU_MANAGED, GPU_MANAGED};
	static const int new[] = {GPU_UNREGISTERED, GPU_HOST, GPU_DEVICE, GPU_MANAGED};
	if (at->managed)
		return GPU_MANAGED;
	if (a->runtime >= 6 * MAJOR)
		return at->type >= 0 && at->type < 4 ? new[at->type] : at->type == 11 ? GPU_MANAGED : GPU_DEVICE;
	return at->type >= 0 && at->type < 5 ? old[at->type] : GPU_DEVICE;
}

static struct gpu_rc pointer(struct gpu_api *a, uint64_t addr, struct gpu_pointer *p) {
	struct attributes at = {0};
	int code = gpu_answer(a, "hipPointerGetAttributes", a->hip.pointer(&at, addr)).code;
	if (code == GPU_INVALID_VALUE) // not an address of HIP's
		return (struct gpu_rc){"hipPointerGetAttributes", 0};
	if (code)
		return (struct gpu_rc){"hipPointerGetAttributes", code};
	p->kind = kind(a, &at);
	if (p->kind == GPU_UNREGISTERED)
		return (struct gpu_rc){"hipPointerGetAttributes", 0};
	p->device = at.device;
	p->device_addr = p->kind == GPU_HOST ? at.device_addr : addr; // one address space for all devices
	p->host_addr = at.host_addr;
	uint64_t base = 0;
	size_t n = 0;
	if (p->kind != GPU_HOST && !GPU_ASK(a, range, &base, &n, addr).code) {
		p->base = base;
		p->bytes = n;
	}
	if (p->kind == GPU_DEVICE)
		p->can = GPU_CAN_IPC | GPU_CAN_RDMA;
	return (struct gpu_rc){"hipPointerGetAttributes", 0};
}

static struct gpu_rc peer_enable(struct gpu_api *a, int peer) {
	return gpu_answer(a, "hipDeviceEnablePeerAccess", a->hip.peer_enable(peer, 0));
}

static struct gpu_rc copy(struct gpu_api *a, uint64_t dst, uint64_t src, uint64_t n, uint64_t stream) {
	return gpu_answer(a, "hipMemcpyAsync", a->hip.copy(dst, src, n, 4, stream)); // hipMemcpyDefault
}

static struct gpu_rc copy_peer(struct gpu_api *a, uint64_t dst, int dst_dev, uint64_t src, int src_dev, uint64_t n, uint64_t stream) {
	return gpu_answer(a, "hipMemcpyPeerAsync", a->hip.copy_peer(dst, dst_dev, src, src_dev, n, stream));
}

static struct gpu_rc module_load(struct gpu_api *a, const void *image, uint64_t *module, char *log, size_t n) {
	(void)log, (void)n;
	return gpu_answer(a, "hipModuleLoadData", a->hip.module_load(module, image));
}

// Code objects of AMD get all the local memory that a launch asks for.
static struct gpu_rc function_shared(struct gpu_api *a, uint64_t function, int bytes) {
	(void)a, (void)function, (void)bytes;
	return (struct gpu_rc){"hipModuleLaunchKernel", 0};
}

// Version 7.1 takes the descriptor itself, as CUDA does; those before took its address.
static struct gpu_rc vmm_import(struct gpu_api *a, int fd, uint64_t *handle) {
	int by_value = a->runtime >= 7 * MAJOR + 1 * MINOR;
	return GPU_ASK(a, vmm_import, handle, by_value ? (void *)(uintptr_t)fd : (void *)&fd, 1); // hipMemHandleTypePosixFileDescriptor
}

// hsa_code is what HIP calls an hsa_status_t.
static int hsa_code(int status) {
	switch (status) {
	case 0: // HSA_STATUS_SUCCESS
		return GPU_OK;
	case 0x1001: // ..._ERROR_INVALID_ARGUMENT
	case 0x1003: // ..._ERROR_INVALID_ALLOCATION
		return GPU_INVALID_VALUE;
	case 0x1008: // ..._ERROR_OUT_OF_RESOURCES
		return GPU_OUT_OF_MEMORY;
	default:
		return GPU_NOT_SUPPORTED;
	}
}

// The runtime below HIP reports where in the descriptor's memory the range is. HIP's own call, of version 7, does not, and the memory may be more
// than was asked for: it is asked for all of an allocation.
static struct gpu_rc dmabuf(struct gpu_api *a, uint64_t addr, uint64_t n, int *fd, uint64_t *offset) {
	if (a->hip.hsa_dmabuf)
		return (struct gpu_rc){"hsa_amd_portable_export_dmabuf", hsa_code(a->hip.hsa_dmabuf(addr, n, fd, offset))};
	uint64_t base = 0;
	size_t all = 0, page = (size_t)sysconf(_SC_PAGESIZE);
	struct gpu_rc rc = GPU_ASK(a, range, &base, &all, addr);
	if (rc.code)
		return rc;
	*offset = addr - base;
	return GPU_ASK(a, range_handle, fd, base, (all + page - 1) & ~(page - 1), 1, 0); // hipMemRangeHandleTypeDmaBufFd
}

// hipIpcMemLazyEnablePeerAccess was 0 in version 5.
static unsigned ipc_flags(const struct gpu_api *a) { return a->runtime >= 6 * MAJOR; }

const struct gpu_vendor gpu_vendor_hip = {
	.vendor = GPU_HIP,
	.launch_end = 3,
	.p2p_rank = 0,    // hipDevP2PAttrPerformanceRank
	.p2p_atomics = 2, // hipDevP2PAttrNativeAtomicSupported
	GPU_ADAPTERS,
};
