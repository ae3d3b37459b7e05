// SPDX-License-Identifier: MIT

// Shared by fast.go and fast.c.
#pragma once
#include <stdint.h>

enum { MORI_OK = 0, MORI_STALE = -1, MORI_WOULD_WAIT = -2, MORI_PANICKED = -3 };
enum { MORI_UPDATE, MORI_SET_CODE, MORI_SET_MESSAGE };

// A status as C holds it: a handle, and the address of its code. The number of parked threads
// follows the code. Both are 32-bit words that are valid until moriStatusRelease.
typedef struct {
	uint64_t id;
	uint64_t word;
} mori_status_ref;

// What a transfer waits for before it begins.
enum { MORI_AFTER_NOTHING, MORI_AFTER_EVENT, MORI_AFTER_STREAM };

// One transfer, as every call in Python posts it. Arrays belong to the caller and are read only
// during the call. A new option of transfers needs a field here, one in io.Request, and a line in
// post.c, session.go and mori/io/_transfer.py.
typedef struct {
	uint64_t session, uid;
	uint64_t *local, *remote, *sizes; // bytes; offsets are relative to the two regions
	int64_t nlocal, nremote, nsizes;
	uint64_t block_size;  // if not 0, the size of every entry: sizes is ignored
	char *tag;            // ntag bytes of UTF-8
	int64_t ntag;
	int64_t deadline_ms;  // negative: the session's default; 0: none
	uint64_t after_handle, after_gpu;
	int after;            // MORI_AFTER_...
	int write;
	int may_wait;         // may block to open a connection
} mori_transfer;

// Creates the module `name` in sys.modules; takes the GIL. Returns 0, or -1 with the Python error
// printed.
int mori_install_fast(const char *name);
