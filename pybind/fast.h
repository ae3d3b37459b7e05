// SPDX-License-Identifier: MIT

// What fast.go and fast.c share.
#pragma once
#include <stdint.h>

enum { MORI_OK = 0, MORI_STALE = -1, MORI_WOULD_WAIT = -2, MORI_PANICKED = -3 };
enum { MORI_UPDATE, MORI_SET_CODE, MORI_SET_MESSAGE };

// A status as C holds it: a handle, and the address of its code, behind which stands the count of parked
// threads. Both are 32-bit words that live until moriStatusRelease.
typedef struct {
	uint64_t id;
	uint64_t word;
} mori_status_ref;

// Creates the module `name` in sys.modules; takes the GIL. 0, or -1 with the Python error printed.
int mori_install_fast(const char *name);
