// SPDX-License-Identifier: MIT
// What the GPU tests share: two GPUs of one host through NVIDIA's driver API, as the library itself uses it. Where there is
// one GPU, it plays both.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

inline void check(CUresult result, const char* call, int line) {
    if (result != CUDA_SUCCESS) {
        const char* name = "?";
        cuGetErrorName(result, &name);
        fprintf(stderr, "line %d: %s: %s\n", line, call, name);
        exit(1);
    }
}
#define CHECK(call) check((call), #call, __LINE__)

inline void require(bool ok, const std::string& what) {
    if (!ok) {
        fprintf(stderr, "failed: %s\n", what.c_str());
        exit(1);
    }
}

// Kernels wait for each other. The driver loads a kernel at its first launch unless it is set to load
// all at once, and loading waits for the kernels of the context that run: on one GPU, the other side's.
// CUDA has 8 queues for streams unless it is set to have more.
inline const bool sidesRunTogether = setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0 &&
                                     setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0;

inline CUdeviceptr allocate(uint64_t bytes) {
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc(&address, bytes));
    return address;
}

/// One GPU: its context, a stream, and a module that was compiled ahead of time.
class Gpu {
public:
    explicit Gpu(int index) {
        CHECK(cuDeviceGet(&device_, index));
        CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
        use();
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    }

    void use() const { CHECK(cuCtxSetCurrent(context_)); }

    void reach(const Gpu& peer) const {
        if (peer.device_ == device_) {
            return;
        }
        use();
        CHECK(cuCtxEnablePeerAccess(peer.context_, 0));
    }

    CUmodule load(const std::string& path) const {
        use();
        std::ifstream file(path);
        require(bool(file), "open " + path);
        std::stringstream text;
        text << file.rdbuf();
        CUmodule module = nullptr;
        CHECK(cuModuleLoadData(&module, text.str().c_str()));
        return module;
    }

    CUstream stream = nullptr;

private:
    CUdevice device_ = 0;
    CUcontext context_ = nullptr;
};

/// The second of two GPUs, or the only one.
inline int secondGpu() {
    int count = 0;
    CHECK(cuDeviceGetCount(&count));
    require(count > 0, "there is a GPU");
    printf("on %s\n", count > 1 ? "two GPUs" : "one GPU, which plays both");
    return count > 1 ? 1 : 0;
}

/// Host memory that GPUs see at the same address.
template <class T>
T* mappedHost(uint64_t count) {
    void* memory = nullptr;
    CHECK(cuMemHostAlloc(&memory, count * sizeof(T), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    return static_cast<T*>(memory);
}

/// Milliseconds between two events of a stream.
class Timer {
public:
    explicit Timer(const Gpu& gpu) {
        gpu.use();
        CHECK(cuEventCreate(&begin_, CU_EVENT_DEFAULT));
        CHECK(cuEventCreate(&end_, CU_EVENT_DEFAULT));
    }
    void begin(CUstream stream) { CHECK(cuEventRecord(begin_, stream)); }
    void end(CUstream stream) { CHECK(cuEventRecord(end_, stream)); }
    double milliseconds() {
        CHECK(cuEventSynchronize(end_));
        float ms = 0;
        CHECK(cuEventElapsedTime(&ms, begin_, end_));
        return ms;
    }

private:
    CUevent begin_ = nullptr;
    CUevent end_ = nullptr;
};
