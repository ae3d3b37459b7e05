/* SPDX-License-Identifier: MIT */
/*
 * The host's side of the example programs: core/interchange, as pybind/capi has it in libmori_capi.so. A side opens a device (an RDMA NIC, the
 * emulated one, or a proxy), makes an endpoint, is connected to another side, registers a buffer on its GPU, and lets kernels
 * do the rest.
 *
 * Each function returns 0; or -1, and then *error has the reason. Texts belong to the caller, who frees them with free(). A side is
 * used by one thread at a time. Steps out of order are refused, and every wait ends.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a side is to be. Empty texts and zeros are defaults. */
struct mori_side_options {
    char* device;       /* "emu0", "proxy:tcp", "mlx5_0" */
    char* gpu;          /* "cpu", "cuda:0", "hip:0" */
    double limit;       /* seconds that a wait may last; default 30 */
    uint32_t receives;  /* 1 << receives messages may be waited for at once; 0: none */
    char* folder;       /* of compiled kernels: NAME.sm_80.ptx and the like; not used on the CPU */
    char* module;       /* NAME */
    char* functions;    /* the kernels of it that the program launches, with commas between them */
};

struct mori_memory {
    uint64_t addr, bytes;
    uint32_t lkey, rkey;
};

/* What kernels are handed once both sides have met. */
struct mori_view {
    uint64_t queue;           /* the mori::nic::Queue, or mori::proxy::Queue, as kernels see it */
    uint32_t proxy;           /* 1: it is a proxy's */
    uint32_t cpu;             /* 1: kernels run on threads of the caller */
    struct mori_memory mine;
    struct mori_memory peer;  /* with a proxy, which names it by offsets, only its bytes */
    uint64_t words;           /* 4096 bytes of host memory, zeros, that kernels see at the same address */
    uint64_t limit;           /* nanoseconds */
};

int mori_side_open(struct mori_side_options* options, uint64_t* side, char** error);
int mori_side_gpu(uint64_t side, char** text, char** error);
int mori_side_discover(uint64_t side, char** lines, char** error); /* devices, each with its ports below it */
int mori_side_device(uint64_t side, char** text, char** error);
int mori_side_endpoint(uint64_t side, uint32_t* number, char** address, char** error);
int mori_side_connect(uint64_t side, char* address, char** error);
int mori_side_register(uint64_t side, uint64_t bytes, uint64_t* addr, char** keys, char** shown, char** error);
int mori_side_meet(uint64_t side, char* shown, char** error);
int mori_side_view(uint64_t side, struct mori_view* view, char** error);

/* Copies between the side's buffer and the program's memory, while no kernel runs. */
int mori_side_fill(uint64_t side, uint64_t offset, void* from, uint64_t bytes, char** error);
int mori_side_fetch(uint64_t side, uint64_t offset, void* to, uint64_t bytes, char** error);

/* Offers a part of the buffer for the next message, and waits for the next one that has come. */
int mori_side_receive(uint64_t side, uint64_t offset, uint64_t bytes, char** error);
int mori_side_received(uint64_t side, uint32_t* bytes, uint32_t* immediate, char** error);

/* Runs a kernel as one block on the side's GPU, and waits for its end. args is its one argument, by value. */
int mori_side_launch(uint64_t side, char* function, void* args, uint64_t bytes, uint32_t threads, char** error);
int mori_side_close(uint64_t side, char** error);

#ifdef __cplusplus
}
#endif
