// SPDX-License-Identifier: MIT
//
// Memory, host memory and handles for other processes. Part of fake.c.

static uint64_t mapped(int fd, size_t n, uint64_t where, int prot) {
	void *p = mmap((void *)(uintptr_t)where, n, prot, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
	return p == MAP_FAILED ? 0 : (uintptr_t)p;
}

// file_name is what the memory of a process is called among its descriptors.
static void file_name(char *to, size_t n, int pid, uint64_t id) { snprintf(to, n, "mori-gpu-%d-%llu", pid, (unsigned long long)id); }

// new_file makes the memory of a thing.
static void new_file(struct thing *t, size_t n) {
	char name[64];
	file_name(name, sizeof(name), getpid(), t->id);
	t->size = n;
	t->fd = memfd_create(name, MFD_CLOEXEC);
	if (t->fd < 0 || ftruncate(t->fd, (off_t)n))
		misuse("no memory file of %zu bytes: %s", n, strerror(errno));
}

DEF(cuMemAlloc_v2, hipMalloc, (uint64_t * addr, size_t n)) {
	START(CALLED(cuMemAlloc_v2, hipMalloc))
	if (n == 0 || n > available(dev)) {
		code = n ? NO_MEMORY : INVALID;
	} else {
		struct thing *t = make(MEMORY, dev);
		new_file(t, n);
		*addr = t->base = mapped(t->fd, n, 0, PROT_READ | PROT_WRITE);
	}
	END
}

DEF(cuMemFree_v2, hipFree, (uint64_t addr)) {
	START(CALLED(cuMemFree_v2, hipFree))
	struct thing *t = leaving(CALLED(cuMemFree_v2, hipFree), MEMORY, addr);
	if (t) {
		// Who still has it mapped finds zeros.
		fallocate(t->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)t->size);
		munmap((void *)(uintptr_t)addr, t->size);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}

DEF(cuMemGetAddressRange_v2, hipMemGetAddressRange, (uint64_t * base, size_t *n, uint64_t addr)) {
	OUTSIDE(CALLED(cuMemGetAddressRange_v2, hipMemGetAddressRange))
	struct thing *t = around(addr);
	if (t) {
		*base = t->base;
		*n = t->size;
	} else {
		code = INVALID;
	}
	END
}

// What is smaller comes out of a larger piece in CUDA's driver, and need not begin at a page: seen on an H200 with driver 580, 512 bytes behind one.
enum { POOLED = 64 << 10, BEHIND = 512 };

DEF(cuMemHostAlloc, hipHostMalloc, (uint64_t * host, size_t n, unsigned flags)) {
	START(CALLED(cuMemHostAlloc, hipHostMalloc))
	if (flags != 3 || n == 0) {
		code = INVALID;
	} else {
		size_t behind = n < POOLED ? BEHIND : 0;
		void *p = mmap(NULL, n + behind, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			code = NO_MEMORY;
		} else {
			struct thing *t = make(HOST, dev);
			t->size = n;
			t->base = *host = (uintptr_t)p + behind;
		}
	}
	END
}

DEF(cuMemFreeHost, hipHostFree, (uint64_t host)) {
	START(CALLED(cuMemFreeHost, hipHostFree))
	struct thing *t = leaving(CALLED(cuMemFreeHost, hipHostFree), HOST, host);
	if (t) {
		size_t behind = t->size < POOLED ? BEHIND : 0;
		munmap((void *)(uintptr_t)(host - behind), t->size + behind);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}

DEF(cuMemHostRegister_v2, hipHostRegister, (uint64_t host, size_t n, unsigned flags)) {
	START(CALLED(cuMemHostRegister_v2, hipHostRegister))
	if (flags != 3 || n == 0) {
		code = INVALID;
	} else {
		for (int i = 1; i < most && !code; i++)
			if ((things[i].kind == HOST || things[i].kind == REGISTRATION) && overlap(things[i].base, things[i].size, host, n))
				code = REGISTERED;
		if (!code && around(host))
			code = INVALID;
	}
	if (!code) {
		struct thing *t = make(REGISTRATION, dev);
		t->base = host;
		t->size = n;
	}
	END
}

DEF(cuMemHostUnregister, hipHostUnregister, (uint64_t host)) {
	START(CALLED(cuMemHostUnregister, hipHostUnregister))
	struct thing *t = leaving(CALLED(cuMemHostUnregister, hipHostUnregister), REGISTRATION, host);
	if (t) {
		drop(t);
	} else {
		code = INVALID;
	}
	END
}

DEF(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer, (uint64_t * addr, uint64_t host, unsigned flags)) {
	(void)flags;
	START(CALLED(cuMemHostGetDevicePointer_v2, hipHostGetDevicePointer))
	*addr = host;
	if (!around(host))
		code = INVALID;
	END
}

// A handle says where to find the memory: the process, its descriptor and what that is called, which tells whether it still is the memory.
struct handle {
	char text[64];
};

struct found {
	int pid, fd, dev;
	unsigned long long size, id;
};

static int found_by(const struct handle *h, struct found *f) {
	char text[65] = "";
	memcpy(text, h->text, 64);
	return sscanf(text, "%d %d %d %llu %llu", &f->pid, &f->fd, &f->dev, &f->size, &f->id) == 5;
}

// opened opens the file, or answers -1 if it is another's by now: the memory was freed, or its process is gone.
static int opened(const struct found *f) {
	char path[64], want[96] = "/memfd:", is[128];
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", f->pid, f->fd);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return -1;
	file_name(want + strlen(want), sizeof(want) - strlen(want), f->pid, f->id);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, is, sizeof(is) - 1);
	is[n < 0 ? 0 : n] = 0;
	if (strncmp(is, want, strlen(want)) || is[strlen(want)] != ' ') {
		close(fd);
		return -1;
	}
	return fd;
}

DEF(cuIpcGetMemHandle, hipIpcGetMemHandle, (struct handle * h, uint64_t addr)) {
	START(CALLED(cuIpcGetMemHandle, hipIpcGetMemHandle))
	struct thing *t = around(addr);
	memset(h, 0, sizeof(*h));
	if (t && t->kind == MEMORY && t->dev == dev)
		snprintf(h->text, sizeof(h->text), "%d %d %d %llu %llu", getpid(), t->fd, dev, (unsigned long long)t->size, (unsigned long long)t->id);
	else
		code = INVALID;
	END
}

DEF(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle, (uint64_t * addr, struct handle h, unsigned flags)) {
	START(CALLED(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle))
	struct found f;
	int fd = -1;
	for (int i = 1; i < most && !code; i++)
		if (things[i].kind == OPENED && things[i].dev == dev && !memcmp(things[i].handle, h.text, sizeof(h.text)))
			code = MAPPED;
	if (!code && (flags != NAME(1, (FAKE_HIP > 5)) || !found_by(&h, &f)))
		code = INVALID;
	if (!code && f.pid == getpid())
		code = NO_CONTEXT; // as CUDA has it for a handle of this process
	if (!code && !reaches(dev, f.dev))
		code = NO_PEER;
	if (!code && (fd = opened(&f)) < 0)
		code = INVALID;
	if (!code) {
		struct thing *t = make(OPENED, dev);
		t->fd = fd;
		t->size = f.size;
		t->base = *addr = mapped(fd, f.size, 0, PROT_READ | PROT_WRITE);
		memcpy(t->handle, h.text, sizeof(h.text));
	}
	END
}

DEF(cuIpcCloseMemHandle, hipIpcCloseMemHandle, (uint64_t addr)) {
	START(CALLED(cuIpcCloseMemHandle, hipIpcCloseMemHandle))
	struct thing *t = leaving(CALLED(cuIpcCloseMemHandle, hipIpcCloseMemHandle), OPENED, addr);
	if (t) {
		munmap((void *)(uintptr_t)addr, t->size);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}
