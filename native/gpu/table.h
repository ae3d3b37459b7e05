// SPDX-License-Identifier: MIT
//
// The table that stands for a driver, and what differs between vendors. Only C files of this package see it.
//
// Most calls of HIP's module API have the arguments of their namesakes in CUDA's driver API, in the same order and sizes, so
// one typed pointer serves both (GPU_SHARED). Where they differ, struct gpu_vendor has an adapter for either, which uses the
// vendor's own entries (GPU_CUDA_ONLY, GPU_HIP_ONLY). Names with _v2 are the ABI that cuda.h has defined since CUDA 11.4 at the latest.

#ifndef MORI_GPU_TABLE_H
#define MORI_GPU_TABLE_H

#include <pthread.h>

#include "gpu.h"

// X(field, needed, name in libcuda, name in libamdhip64, arguments). What is not needed may be missing and answers GPU_NOT_SUPPORTED.
#define GPU_SHARED(X)                                                                                                         \
	X(init, 1, "cuInit", "hipInit", (unsigned flags))                                                                           \
	X(driver_version, 1, "cuDriverGetVersion", "hipDriverGetVersion", (int *version))                                           \
	X(count, 1, "cuDeviceGetCount", "hipGetDeviceCount", (int *n))                                                              \
	X(device_name, 1, "cuDeviceGetName", "hipDeviceGetName", (char *name, int n, int dev))                                      \
	X(device_uuid, 1, "cuDeviceGetUuid_v2", "hipDeviceGetUuid", (void *uuid, int dev))                                          \
	X(device_bus, 1, "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId", (char *bus, int n, int dev))                                \
	X(device_total, 1, "cuDeviceTotalMem_v2", "hipDeviceTotalMem", (size_t * n, int dev))                                       \
	X(device_attr, 1, "cuDeviceGetAttribute", "hipDeviceGetAttribute", (int *value, int attr, int dev))                         \
	X(can_access, 1, "cuDeviceCanAccessPeer", "hipDeviceCanAccessPeer", (int *can, int dev, int peer))                          \
	X(p2p_attr, 1, "cuDeviceGetP2PAttribute", "hipDeviceGetP2PAttribute", (int *value, int attr, int dev, int peer))            \
	X(mem_info, 1, "cuMemGetInfo_v2", "hipMemGetInfo", (size_t * available, size_t *total))                                     \
	X(alloc, 1, "cuMemAlloc_v2", "hipMalloc", (uint64_t *addr, size_t n))                                                       \
	X(free, 1, "cuMemFree_v2", "hipFree", (uint64_t addr))                                                                      \
	X(range, 1, "cuMemGetAddressRange_v2", "hipMemGetAddressRange", (uint64_t *base, size_t *n, uint64_t addr))                 \
	X(host_alloc, 1, "cuMemHostAlloc", "hipHostMalloc", (uint64_t *host, size_t n, unsigned flags))                             \
	X(host_free, 1, "cuMemFreeHost", "hipHostFree", (uint64_t host))                                                            \
	X(host_register, 1, "cuMemHostRegister_v2", "hipHostRegister", (uint64_t host, size_t n, unsigned flags))                   \
	X(host_unregister, 1, "cuMemHostUnregister", "hipHostUnregister", (uint64_t host))                                          \
	X(host_device, 1, "cuMemHostGetDevicePointer_v2", "hipHostGetDevicePointer", (uint64_t *addr, uint64_t host, unsigned flags)) \
	X(ipc_get, 1, "cuIpcGetMemHandle", "hipIpcGetMemHandle", (struct gpu_ipc * handle, uint64_t addr))                          \
	X(ipc_open, 1, "cuIpcOpenMemHandle_v2", "hipIpcOpenMemHandle", (uint64_t *addr, struct gpu_ipc handle, unsigned flags))     \
	X(ipc_close, 1, "cuIpcCloseMemHandle", "hipIpcCloseMemHandle", (uint64_t addr))                                             \
	X(set, 1, "cuMemsetD8Async", "hipMemsetD8Async", (uint64_t dst, unsigned char value, size_t n, uint64_t stream))            \
	X(stream_create, 1, "cuStreamCreateWithPriority", "hipStreamCreateWithPriority", (uint64_t *stream, unsigned flags, int priority)) \
	X(stream_destroy, 1, "cuStreamDestroy_v2", "hipStreamDestroy", (uint64_t stream))                                           \
	X(stream_query, 1, "cuStreamQuery", "hipStreamQuery", (uint64_t stream))                                                    \
	X(stream_wait, 1, "cuStreamWaitEvent", "hipStreamWaitEvent", (uint64_t stream, uint64_t event, unsigned flags))             \
	X(priorities, 1, "cuCtxGetStreamPriorityRange", "hipDeviceGetStreamPriorityRange", (int *least, int *greatest))             \
	X(event_create, 1, "cuEventCreate", "hipEventCreateWithFlags", (uint64_t *event, unsigned flags))                           \
	X(event_destroy, 1, "cuEventDestroy_v2", "hipEventDestroy", (uint64_t event))                                               \
	X(event_record, 1, "cuEventRecord", "hipEventRecord", (uint64_t event, uint64_t stream))                                    \
	X(event_query, 1, "cuEventQuery", "hipEventQuery", (uint64_t event))                                                        \
	X(event_elapsed, 1, "cuEventElapsedTime", "hipEventElapsedTime", (float *ms, uint64_t from, uint64_t to))                   \
	X(module_unload, 1, "cuModuleUnload", "hipModuleUnload", (uint64_t module))                                                 \
	X(module_function, 1, "cuModuleGetFunction", "hipModuleGetFunction", (uint64_t *function, uint64_t module, const char *name)) \
	X(module_global, 1, "cuModuleGetGlobal_v2", "hipModuleGetGlobal", (uint64_t *addr, size_t *n, uint64_t module, const char *name)) \
	X(function_attr, 1, "cuFuncGetAttribute", "hipFuncGetAttribute", (int *value, int attr, uint64_t function))                 \
	X(launch, 1, "cuLaunchKernel", "hipModuleLaunchKernel",                                                                     \
	  (uint64_t function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, uint64_t stream, \
	   void **params, void **extra))                                                                                              \
	X(granularity, 0, "cuMemGetAllocationGranularity", "hipMemGetAllocationGranularity", (size_t * n, const struct gpu_prop *prop, int which)) \
	X(vmm_reserve, 0, "cuMemAddressReserve", "hipMemAddressReserve", (uint64_t *addr, size_t n, size_t align, uint64_t at, unsigned long long flags)) \
	X(vmm_unreserve, 0, "cuMemAddressFree", "hipMemAddressFree", (uint64_t addr, size_t n))                                     \
	X(vmm_create, 0, "cuMemCreate", "hipMemCreate", (uint64_t *handle, size_t n, const struct gpu_prop *prop, unsigned long long flags)) \
	X(vmm_release, 0, "cuMemRelease", "hipMemRelease", (uint64_t handle))                                                       \
	X(vmm_map, 0, "cuMemMap", "hipMemMap", (uint64_t addr, size_t n, size_t offset, uint64_t handle, unsigned long long flags)) \
	X(vmm_unmap, 0, "cuMemUnmap", "hipMemUnmap", (uint64_t addr, size_t n))                                                     \
	X(vmm_access, 0, "cuMemSetAccess", "hipMemSetAccess", (uint64_t addr, size_t n, const struct gpu_access *desc, size_t count)) \
	X(vmm_export, 0, "cuMemExportToShareableHandle", "hipMemExportToShareableHandle", (void *to, uint64_t handle, int type, unsigned long long flags)) \
	X(vmm_import, 0, "cuMemImportFromShareableHandle", "hipMemImportFromShareableHandle", (uint64_t *handle, void *from, int type)) \
	X(range_handle, 0, "cuMemGetHandleForAddressRange", "hipMemGetHandleForAddressRange", (void *to, uint64_t addr, size_t n, int type, unsigned long long flags))

// X(field, needed, name, arguments), all in libcuda.
#define GPU_CUDA_ONLY(X)                                                                                                      \
	X(error_name, 1, "cuGetErrorName", (int code, const char **name))                                                           \
	X(error_text, 1, "cuGetErrorString", (int code, const char **text))                                                         \
	X(retain, 1, "cuDevicePrimaryCtxRetain", (void **ctx, int dev))                                                             \
	X(push, 1, "cuCtxPushCurrent_v2", (void *ctx))                                                                              \
	X(pop, 1, "cuCtxPopCurrent_v2", (void **ctx))                                                                               \
	X(current, 1, "cuCtxGetCurrent", (void **ctx))                                                                              \
	X(ctx_device, 0, "cuCtxGetDevice", (int *dev))                                                                              \
	X(peer_enable, 1, "cuCtxEnablePeerAccess", (void *ctx, unsigned flags))                                                     \
	X(pointer, 1, "cuPointerGetAttributes", (unsigned n, int *attrs, void **values, uint64_t addr))                             \
	X(copy, 1, "cuMemcpyAsync", (uint64_t dst, uint64_t src, size_t n, uint64_t stream))                                        \
	X(copy_peer, 1, "cuMemcpyPeerAsync", (uint64_t dst, void *dst_ctx, uint64_t src, void *src_ctx, size_t n, uint64_t stream)) \
	X(module_load, 1, "cuModuleLoadDataEx", (uint64_t *module, const void *image, unsigned n, int *options, void **values))     \
	X(function_set, 1, "cuFuncSetAttribute", (uint64_t function, int attr, int value))

// The same of libamdhip64, and of libhsa-runtime64, on which it stands.
#define GPU_HIP_ONLY(X)                                                                                                       \
	X(error_name, 1, "hipGetErrorName", const char *, (int code))                                                               \
	X(error_text, 1, "hipGetErrorString", const char *, (int code))                                                             \
	X(last_error, 1, "hipGetLastError", int, (void))                                                                            \
	X(runtime_version, 1, "hipRuntimeGetVersion", int, (int *version))                                                          \
	X(get_device, 1, "hipGetDevice", int, (int *dev))                                                                           \
	X(set_device, 1, "hipSetDevice", int, (int dev))                                                                            \
	X(properties, 1, "hipGetDeviceProperties", int, (void *props, int dev))                                                     \
	X(properties_r0600, 0, "hipGetDevicePropertiesR0600", int, (void *props, int dev))                                          \
	X(link, 0, "hipExtGetLinkTypeAndHopCount", int, (int dev, int peer, uint32_t *type, uint32_t *hops))                        \
	X(peer_enable, 1, "hipDeviceEnablePeerAccess", int, (int peer, unsigned flags))                                             \
	X(pointer, 1, "hipPointerGetAttributes", int, (void *attrs, uint64_t addr))                                                 \
	X(copy, 1, "hipMemcpyAsync", int, (uint64_t dst, uint64_t src, size_t n, int kind, uint64_t stream))                        \
	X(copy_peer, 1, "hipMemcpyPeerAsync", int, (uint64_t dst, int dst_dev, uint64_t src, int src_dev, size_t n, uint64_t stream)) \
	X(module_load, 1, "hipModuleLoadData", int, (uint64_t *module, const void *image))                                          \
	X(hsa_dmabuf, 0, "hsa_amd_portable_export_dmabuf", int, (uint64_t addr, size_t n, int *fd, uint64_t *offset))

// cuda.h CUipcMemHandle, hip_runtime_api.h hipIpcMemHandle_t: passed by value.
struct gpu_ipc {
	char reserved[GPU_HANDLE];
};

// cuda.h CUmemAllocationProp, hip_runtime_api.h hipMemAllocationProp.
struct gpu_prop {
	int type, handle_types;
	int location_type, location_id;
	void *win32;
	uint8_t compression, rdma;
	uint16_t usage;
	uint8_t reserved[4];
};

// cuda.h CUmemAccessDesc, hip_runtime_api.h hipMemAccessDesc.
struct gpu_access {
	int location_type, location_id, flags;
};

_Static_assert(sizeof(struct gpu_prop) == 32, "CUmemAllocationProp");
_Static_assert(sizeof(struct gpu_access) == 12, "CUmemAccessDesc");

// What gpu_enter puts aside.
struct gpu_saved {
	int device; // HIP: what was current. CUDA: -1 where nothing was made current
};

// What differs. Adapters are called with dev entered, but for those that say otherwise.
struct gpu_vendor {
	int vendor;
	int launch_end;      // CU_LAUNCH_PARAM_END, HIP_LAUNCH_PARAM_END
	int p2p_rank, p2p_atomics;
	const char *const *libraries; // to look for, NULL at the end
	struct gpu_rc (*enter)(struct gpu_api *a, int dev, struct gpu_saved *saved);
	void (*leave)(struct gpu_api *a, int dev, const struct gpu_saved *saved);
	int (*failed)(struct gpu_api *a, int code); // after each failed call
	void (*error)(struct gpu_api *a, int code, const char **name, const char **text);
	struct gpu_rc (*current)(struct gpu_api *a, uint64_t *current);
	struct gpu_rc (*current_device)(struct gpu_api *a, int *dev);                   // enters nothing; -1: none is current
	void (*versions)(struct gpu_api *a);
	void (*describe)(struct gpu_api *a, int dev, struct gpu_info *info);           // enters nothing
	void (*link)(struct gpu_api *a, int dev, int peer, struct gpu_link *l);        // enters nothing
	struct gpu_rc (*pointer)(struct gpu_api *a, uint64_t addr, struct gpu_pointer *p); // enters nothing that has no context
	struct gpu_rc (*peer_enable)(struct gpu_api *a, int peer);
	struct gpu_rc (*copy)(struct gpu_api *a, uint64_t dst, uint64_t src, uint64_t n, uint64_t stream);
	struct gpu_rc (*copy_peer)(struct gpu_api *a, uint64_t dst, int dst_dev, uint64_t src, int src_dev, uint64_t n, uint64_t stream);
	struct gpu_rc (*module_load)(struct gpu_api *a, const void *image, uint64_t *module, char *log, size_t n);
	struct gpu_rc (*function_shared)(struct gpu_api *a, uint64_t function, int bytes);
	struct gpu_rc (*vmm_import)(struct gpu_api *a, int fd, uint64_t *handle);
	struct gpu_rc (*dmabuf)(struct gpu_api *a, uint64_t addr, uint64_t n, int *fd, uint64_t *offset);
	unsigned (*ipc_flags)(const struct gpu_api *a); // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS and its like
};

// The adapters of a vendor by the names that they have in its file.
#define GPU_ADAPTERS                                                                                                          \
	.libraries = libraries, .enter = enter, .leave = leave, .failed = failed, .error = error, .current = current,               \
	.current_device = current_device, .versions = versions, .describe = describe, .link = link_of, .pointer = pointer,          \
	.peer_enable = peer_enable, .copy = copy, .copy_peer = copy_peer, .module_load = module_load,                               \
	.function_shared = function_shared, .vmm_import = vmm_import, .dmabuf = dmabuf, .ipc_flags = ipc_flags

// A loaded driver. It is made once and stays: drivers are never closed.
struct gpu_api {
	const struct gpu_vendor *v;
	char path[256];
	int driver;  // version of the driver
	int runtime; // HIP: version of the library, else that of the driver
#define X(field, needed, cuda, hip, args) int(*field) args;
	GPU_SHARED(X)
#undef X
	union {
		struct {
#define X(field, needed, name, args) int(*field) args;
			GPU_CUDA_ONLY(X)
#undef X
		} cuda;
		struct {
#define X(field, needed, name, type, args) type(*field) args;
			GPU_HIP_ONLY(X)
#undef X
		} hip;
	};
	pthread_mutex_t lock;
	void *ctx[GPU_MAX_DEVICES]; // CUDA: primary contexts, retained when first entered and kept
};

extern const struct gpu_vendor gpu_vendor_cuda, gpu_vendor_hip;

// The vendor's name of an entry of GPU_SHARED, in the order of the list.
enum {
#define X(field, needed, cuda, hip, args) GPU_N_##field,
	GPU_SHARED(X)
#undef X
};
const char *gpu_shared_name(const struct gpu_api *a, int field);

// gpu_answer converts what a call of the vendor's returned, and clears what a failure left for others to find.
static inline struct gpu_rc gpu_answer(struct gpu_api *a, const char *call, int code) {
	if (code)
		code = a->v->failed(a, code);
	return (struct gpu_rc){call, code};
}

// GPU_ASK calls an entry of GPU_SHARED with what is entered.
#define GPU_ASK(a, field, ...) gpu_answer(a, gpu_shared_name(a, GPU_N_##field), (a)->field ? (a)->field(__VA_ARGS__) : GPU_NOT_SUPPORTED)

#endif
