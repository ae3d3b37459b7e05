// SPDX-License-Identifier: MIT
//
// How fake.c comes to the CPU build of kernels. Compiled without any, it has none.

#ifndef MORI_FAKE_KERNELS_H
#define MORI_FAKE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_kernel {
	const char *name;
	size_t bytes; // of its arguments, packed
	uint32_t threads; // a block may have, on a GPU
	void (*call)(const void *args);
	const struct fake_kernel *next;
};

struct fake_launch {
	const struct fake_kernel *kernel;
	uint32_t blocks, threads;
	const void *args;
	void *state; // the module's mori_shmem_state, or NULL
};

// fake_kernel_find finds a kernel by its name, NULL if there is none.
__attribute__((weak)) const struct fake_kernel *fake_kernel_find(const char *name);

// fake_kernel_run runs a kernel to its end, a thread of the system for each of a few lanes, and returns whether one of them trapped: then the
// others may still be there, and stay.
__attribute__((weak)) int fake_kernel_run(const struct fake_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
