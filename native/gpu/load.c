// SPDX-License-Identifier: MIT

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

static const struct gpu_vendor *vendor_of(int vendor) { return vendor == GPU_CUDA ? &gpu_vendor_cuda : &gpu_vendor_hip; }

static const char *const cuda_names[] = {
#define X(field, needed, cuda, hip, args) cuda,
	GPU_SHARED(X)
#undef X
};

static const char *const hip_names[] = {
#define X(field, needed, cuda, hip, args) hip,
	GPU_SHARED(X)
#undef X
};

const char *gpu_shared_name(const struct gpu_api *a, int field) { return (a->v->vendor == GPU_CUDA ? cuda_names : hip_names)[field]; }

struct entry {
	const char *name;
	size_t at; // in struct gpu_api
	int needed;
};

static const struct entry cuda_entries[] = {
#define X(field, needed, cuda, hip, args) {cuda, offsetof(struct gpu_api, field), needed},
	GPU_SHARED(X)
#undef X
#define X(field, needed, name, args) {name, offsetof(struct gpu_api, cuda.field), needed},
	GPU_CUDA_ONLY(X)
#undef X
	{NULL, 0, 0},
};

static const struct entry hip_entries[] = {
#define X(field, needed, cuda, hip, args) {hip, offsetof(struct gpu_api, field), needed},
	GPU_SHARED(X)
#undef X
#define X(field, needed, name, type, args) {name, offsetof(struct gpu_api, hip.field), needed},
	GPU_HIP_ONLY(X)
#undef X
	{NULL, 0, 0},
};

static const struct entry *entries_of(int vendor) { return vendor == GPU_CUDA ? cuda_entries : hip_entries; }

// gpu_symbol names the symbols of a vendor's table one by one, NULL after the last.
const char *gpu_symbol(int vendor, size_t i, int *needed) {
	const struct entry *e = &entries_of(vendor)[i];
	*needed = e->needed;
	return e->name;
}

const char *gpu_path(const struct gpu_api *a) { return a->path; }

// find opens a library. One that this process has already, such as the runtime that comes with PyTorch, is taken before others:
// two runtimes of one vendor in a process do not know each other's memory.
static void *find(const struct gpu_vendor *v, const char *path, char *why, size_t n, int *answer) {
	void *lib = NULL;
	*answer = GPU_ABSENT;
	if (path) {
		lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	} else {
		for (const char *const *name = v->libraries; !lib && *name; name++)
			lib = dlopen(*name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
		for (const char *const *name = v->libraries; !lib && *name; name++) {
			lib = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
			const char *text = lib ? NULL : dlerror();
			// A library that is there and does not load is not the same as none.
			if (text && !strstr(text, "No such file")) {
				snprintf(why, n, "%s", text);
				*answer = GPU_UNCLEAR;
				return NULL;
			}
			if (text && name == v->libraries)
				snprintf(why, n, "%s", text);
		}
		return lib;
	}
	if (!lib) {
		const char *text = dlerror();
		snprintf(why, n, "%s", text);
		if (!strstr(text, "No such file"))
			*answer = GPU_UNCLEAR;
	}
	return lib;
}

// start asks the driver whether it has devices to drive.
static int start(struct gpu_api *a, char *why, size_t n) {
	int count = 0;
	struct gpu_rc rc = GPU_ASK(a, init, 0);
	if (!rc.code)
		rc = GPU_ASK(a, count, &count);
	if (rc.code) {
		const char *name, *text;
		a->v->error(a, rc.code, &name, &text);
		snprintf(why, n, "%s: %s: %s: %s", a->path, rc.call, name, text);
		return rc.code == GPU_NO_DEVICE || rc.code == GPU_INVALID_DEVICE ? GPU_ABSENT : GPU_UNCLEAR;
	}
	if (count == 0) {
		snprintf(why, n, "%s: it knows no device", a->path);
		return GPU_ABSENT;
	}
	a->v->versions(a);
	return GPU_OPEN;
}

int gpu_open(int vendor, const char *path, struct gpu_api **out, char *why, size_t n) {
	const struct gpu_vendor *v = vendor_of(vendor);
	int answer;
	void *lib = find(v, path, why, n, &answer);
	if (!lib)
		return answer;
	struct gpu_api *a = calloc(1, sizeof(*a));
	if (!a) {
		snprintf(why, n, "out of memory");
		return GPU_UNCLEAR;
	}
	a->v = v;
	pthread_mutex_init(&a->lock, NULL);
	snprintf(a->path, sizeof(a->path), "%s", path ? path : v->libraries[0]);
	for (const struct entry *e = entries_of(vendor); e->name; e++) {
		void *sym = dlsym(lib, e->name);
		memcpy((char *)a + e->at, &sym, sizeof(sym));
		Dl_info where;
		if (sym && e == entries_of(vendor) && dladdr(sym, &where) && where.dli_fname)
			snprintf(a->path, sizeof(a->path), "%s", where.dli_fname);
		if (!sym && e->needed) {
			snprintf(why, n, "%s has no %s: it is too old", a->path, e->name);
			free(a);
			return GPU_ABSENT;
		}
	}
	answer = start(a, why, n);
	if (answer != GPU_OPEN) {
		pthread_mutex_destroy(&a->lock);
		free(a);
		return answer;
	}
	*out = a;
	return GPU_OPEN;
}

int gpu_versions(struct gpu_api *a, int *driver) {
	*driver = a->driver;
	return a->runtime;
}

void gpu_error(struct gpu_api *a, int code, const char **name, const char **text) { a->v->error(a, code, name, text); }

struct gpu_rc gpu_current(struct gpu_api *a, uint64_t *current) { return a->v->current(a, current); }
struct gpu_rc gpu_current_device(struct gpu_api *a, int *dev) { return a->v->current_device(a, dev); }
