// SPDX-License-Identifier: MIT
//
// What is CUDA's own. Numbers are cuda.h's; the comment at each says its name there.

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "table.h"

static const char *const libraries[] = {"libcuda.so.1", NULL};

// A device's primary context is the one that the CUDA runtime, and so PyTorch, works in. It is retained when a device is first
// entered, which costs some hundred MiB of the device, and kept: the driver lets go of it when the process ends.
static struct gpu_rc primary(struct gpu_api *a, int dev, void **ctx) {
	if (dev < 0 || dev >= GPU_MAX_DEVICES)
		return (struct gpu_rc){"cuDevicePrimaryCtxRetain", GPU_INVALID_DEVICE};
	int code = 0;
	*ctx = __atomic_load_n(&a->ctx[dev], __ATOMIC_ACQUIRE);
	if (*ctx)
		return (struct gpu_rc){"cuDevicePrimaryCtxRetain", 0};
	pthread_mutex_lock(&a->lock);
	*ctx = a->ctx[dev];
	if (!*ctx) {
		code = a->cuda.retain(ctx, dev);
		if (!code)
			__atomic_store_n(&a->ctx[dev], *ctx, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&a->lock);
	return (struct gpu_rc){"cuDevicePrimaryCtxRetain", code};
}

// enter asks first whether the context is current: on a thread of PyTorch it is, and to ask costs less than to push and pop.
static struct gpu_rc enter(struct gpu_api *a, int dev, struct gpu_saved *saved) {
	void *ctx = NULL, *now = NULL;
	struct gpu_rc rc = primary(a, dev, &ctx);
	if (rc.code)
		return rc;
	saved->device = -1;
	if (!a->cuda.current(&now) && now == ctx)
		return (struct gpu_rc){"cuCtxGetCurrent", 0};
	saved->device = dev;
	return (struct gpu_rc){"cuCtxPushCurrent_v2", a->cuda.push(ctx)};
}

static void leave(struct gpu_api *a, int dev, const struct gpu_saved *saved) {
	void *ours;
	if (saved->device == dev)
		a->cuda.pop(&ours);
}

static int failed(struct gpu_api *a, int code) {
	(void)a;
	return code;
}

static void error(struct gpu_api *a, int code, const char **name, const char **text) {
	*name = *text = NULL;
	if (a->cuda.error_name(code, name) || !*name)
		*name = "unknown error";
	if (a->cuda.error_text(code, text) || !*text)
		*text = "the driver has no text for it";
}

static struct gpu_rc current(struct gpu_api *a, uint64_t *current) {
	void *ctx = NULL;
	int code = a->cuda.current(&ctx);
	*current = (uintptr_t)ctx;
	return (struct gpu_rc){"cuCtxGetCurrent", code};
}

static struct gpu_rc current_device(struct gpu_api *a, int *dev) {
	void *ctx = NULL;
	*dev = -1;
	int code = a->cuda.current(&ctx);
	if (code || !ctx)
		return (struct gpu_rc){"cuCtxGetCurrent", code};
	return (struct gpu_rc){"cuCtxGetDevice", a->cuda.ctx_device ? a->cuda.ctx_device(dev) : GPU_NOT_SUPPORTED};
}

static void versions(struct gpu_api *a) {
	if (a->driver_version(&a->driver))
		a->driver = 0;
	a->runtime = a->driver;
}

// attr is 0 if the driver does not know the attribute: older ones have fewer.
static int attr(struct gpu_api *a, int dev, int which) {
	int value = 0;
	return a->device_attr(&value, which, dev) ? 0 : value;
}

static void describe(struct gpu_api *a, int dev, struct gpu_info *info) {
	const struct {
		int attr;
		uint32_t bit;
	} has[] = {
		{86, GPU_HAS_HOST_ATOMICS}, // CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED
		{102, GPU_HAS_VMM},         // ..._VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
		{103, GPU_HAS_VMM_FD},      // ..._HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
		{128, GPU_HAS_FABRIC},      // ..._HANDLE_TYPE_FABRIC_SUPPORTED
		{124, GPU_HAS_DMABUF},      // ..._DMA_BUF_SUPPORTED
		{116, GPU_HAS_RDMA},        // ..._GPU_DIRECT_RDMA_SUPPORTED
		{110, GPU_HAS_VMM_RDMA},    // ..._GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
		{18, GPU_HAS_INTEGRATED},   // ..._INTEGRATED
	};
	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		if (attr(a, dev, has[i].attr))
			info->has |= has[i].bit;
	info->threads = attr(a, dev, 1);      // ..._MAX_THREADS_PER_BLOCK
	info->shared = attr(a, dev, 8);       // ..._MAX_SHARED_MEMORY_PER_BLOCK
	info->warp = attr(a, dev, 10);        // ..._WARP_SIZE
	info->clock_khz = attr(a, dev, 13);   // ..._CLOCK_RATE
	info->units = attr(a, dev, 16);       // ..._MULTIPROCESSOR_COUNT
	info->l2_bytes = attr(a, dev, 38);    // ..._L2_CACHE_SIZE
	info->copy_engines = attr(a, dev, 40); // ..._ASYNC_ENGINE_COUNT
	info->major = attr(a, dev, 75);       // ..._COMPUTE_CAPABILITY_MAJOR
	info->minor = attr(a, dev, 76);       // ..._COMPUTE_CAPABILITY_MINOR
	info->shared_most = attr(a, dev, 97); // ..._MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
	snprintf(info->arch, sizeof(info->arch), "sm_%d%d", info->major, info->minor);
}

// Peers with native atomics are joined by NVLink: PCIe does not carry all of CUDA's atomics.
static void link_of(struct gpu_api *a, int dev, int peer, struct gpu_link *l) {
	(void)a, (void)dev, (void)peer;
	if (l->access)
		l->kind = l->atomics ? GPU_LINK_NVLINK : GPU_LINK_PCIE;
}

// mapped asks for the address under which a device sees host memory, which the driver answers where the device is current only. It
// has a context there: the memory was pinned in it.
static uint64_t mapped(struct gpu_api *a, int dev, uint64_t addr) {
	struct gpu_saved saved;
	uint64_t at = 0;
	int attrs[] = {3}; // CU_POINTER_ATTRIBUTE_DEVICE_POINTER
	void *values[] = {&at};
	if (enter(a, dev, &saved).code)
		return 0;
	int code = a->cuda.pointer(1, attrs, values, addr);
	leave(a, dev, &saved);
	return code ? 0 : at;
}

static struct gpu_rc pointer(struct gpu_api *a, uint64_t addr, struct gpu_pointer *p) {
	unsigned type = 0, managed = 0;
	int device = -1, legacy_ipc = 0;
	uint64_t host_addr = 0, start = 0, size = 0, handles = 0;
	int rdma = 0;
	// CU_POINTER_ATTRIBUTE_MEMORY_TYPE, HOST_POINTER, IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_CUDA_IPC_CAPABLE,
	// RANGE_START_ADDR, RANGE_SIZE, ALLOWED_HANDLE_TYPES, IS_GPU_DIRECT_RDMA_CAPABLE
	int attrs[] = {2, 4, 8, 9, 10, 11, 12, 14, 15};
	void *values[] = {&type, &host_addr, &managed, &device, &legacy_ipc, &start, &size, &handles, &rdma};
	int code = a->cuda.pointer(sizeof(attrs) / sizeof(attrs[0]), attrs, values, addr);
	if (code == GPU_INVALID_VALUE) // not an address of CUDA's
		return (struct gpu_rc){"cuPointerGetAttributes", 0};
	if (code)
		return (struct gpu_rc){"cuPointerGetAttributes", code};
	if (type == 0)
		return (struct gpu_rc){"cuPointerGetAttributes", 0};
	p->kind = managed ? GPU_MANAGED : type == 1 ? GPU_HOST : GPU_DEVICE; // CU_MEMORYTYPE_HOST is 1, DEVICE 2
	p->device = device;
	p->device_addr = p->kind == GPU_HOST ? mapped(a, device, addr) : addr; // one address space for all devices
	p->host_addr = host_addr;
	p->base = start;
	p->bytes = size;
	p->can = (legacy_ipc ? GPU_CAN_IPC : 0) | (handles & 1 ? GPU_CAN_FD : 0) | (rdma ? GPU_CAN_RDMA : 0);
	return (struct gpu_rc){"cuPointerGetAttributes", 0};
}

static struct gpu_rc peer_enable(struct gpu_api *a, int peer) {
	void *ctx = NULL;
	struct gpu_rc rc = primary(a, peer, &ctx);
	return rc.code ? rc : (struct gpu_rc){"cuCtxEnablePeerAccess", a->cuda.peer_enable(ctx, 0)};
}

static struct gpu_rc copy(struct gpu_api *a, uint64_t dst, uint64_t src, uint64_t n, uint64_t stream) {
	return (struct gpu_rc){"cuMemcpyAsync", a->cuda.copy(dst, src, n, stream)};
}

static struct gpu_rc copy_peer(struct gpu_api *a, uint64_t dst, int dst_dev, uint64_t src, int src_dev, uint64_t n, uint64_t stream) {
	void *to = NULL, *from = NULL;
	struct gpu_rc rc = primary(a, dst_dev, &to);
	if (!rc.code)
		rc = primary(a, src_dev, &from);
	return rc.code ? rc : (struct gpu_rc){"cuMemcpyPeerAsync", a->cuda.copy_peer(dst, to, src, from, n, stream)};
}

static struct gpu_rc module_load(struct gpu_api *a, const void *image, uint64_t *module, char *log, size_t n) {
	int options[] = {5, 6}; // CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
	void *values[] = {log, (void *)(uintptr_t)(n - 1)};
	return (struct gpu_rc){"cuModuleLoadDataEx", a->cuda.module_load(module, image, 2, options, values)};
}

static struct gpu_rc function_shared(struct gpu_api *a, uint64_t function, int bytes) {
	return (struct gpu_rc){"cuFuncSetAttribute", a->cuda.function_set(function, 8, bytes)}; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
}

static struct gpu_rc vmm_import(struct gpu_api *a, int fd, uint64_t *handle) {
	return GPU_ASK(a, vmm_import, handle, (void *)(uintptr_t)fd, 1); // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
}

// Only the pages that are asked for are in it: what a NIC is shown takes of the GPU's window on the bus, which may be small.
static struct gpu_rc dmabuf(struct gpu_api *a, uint64_t addr, uint64_t n, int *fd, uint64_t *offset) {
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = addr & ~(page - 1), end = (addr + n + page - 1) & ~(page - 1);
	*offset = addr - first;
	return GPU_ASK(a, range_handle, fd, first, end - first, 1, 0); // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
}

static unsigned ipc_flags(const struct gpu_api *a) {
	(void)a;
	return 1; // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
}

const struct gpu_vendor gpu_vendor_cuda = {
	.vendor = GPU_CUDA,
	.launch_end = 0,
	.p2p_rank = 1,    // CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
	.p2p_atomics = 3, // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
	GPU_ADAPTERS,
};
