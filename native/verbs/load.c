// SPDX-License-Identifier: MIT

#define _GNU_SOURCE // dlvsym
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "door.h"

struct vb_door vb_door;

static char path[VB_PATH];

const char *vb_library(void) { return path; }

// Of a name in several versions dlsym may give the oldest, whose structs are others. A library without versions has one of each.
static void *symbol(void *lib, const char *name, const char *version) {
	void *sym = dlvsym(lib, name, version);
	return sym ? sym : dlsym(lib, name);
}

int vb_load(char *why, size_t n) {
	void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, n, "%s: install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core", dlerror());
		return ENOENT;
	}
	const struct {
		const char *name, *version;
		int needed;
		size_t at;
	} wanted[] = {
#define X(field, function, version, needed) {#function, version, needed, offsetof(struct vb_door, field)},
		VB_SYMBOLS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *sym = symbol(lib, wanted[i].name, wanted[i].version);
		if (!sym && wanted[i].needed) {
			snprintf(why, n, "libibverbs.so.1 has no %s of %s: it is too old", wanted[i].name, wanted[i].version);
			dlclose(lib);
			return ENOSYS;
		}
		memcpy((char *)&vb_door + wanted[i].at, &sym, sizeof(sym));
	}
	Dl_info where;
	if (dladdr((void *)vb_door.open_device, &where) && where.dli_fname)
		snprintf(path, sizeof(path), "%s", where.dli_fname);
	return 0;
}
