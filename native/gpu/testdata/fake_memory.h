// SPDX-License-Identifier: MIT
//
// Memory, host memory and handles for other processes. Part of fake.c.

static uint64_t mapped(int fd, size_t n, uint64_t where, int prot) {
	void *p = mmap((void *)(uintptr_t)where, n, prot, MAP_SHARED | (where ? MAP_FIXED : 0), fd, 0);
	return p == MAP_FAILED ? 0 : (uintptr_t)p;
}

DEF(cuMemAlloc_v2, hipMalloc, (uint64_t * addr, size_t n)) {
	START(CALLED(cuMemAlloc_v2, hipMalloc))
	if (n == 0 || n > 1u << 30) {
		code = n ? NO_MEMORY : INVALID;
	} else {
		struct thing *t = make(MEMORY, dev);
		t->fd = memfd_create("fake", MFD_CLOEXEC);
		if (t->fd < 0 || ftruncate(t->fd, (off_t)n))
			abort();
		t->size = n;
		*addr = t->base = mapped(t->fd, n, 0, PROT_READ | PROT_WRITE);
	}
	END
}

DEF(cuMemFree_v2, hipFree, (uint64_t addr)) {
	START(CALLED(cuMemFree_v2, hipFree))
	struct thing *t = at(MEMORY, addr);
	if (t) {
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

DEF(cuMemHostAlloc, hipHostMalloc, (uint64_t * host, size_t n, unsigned flags)) {
	START(CALLED(cuMemHostAlloc, hipHostMalloc))
	if (flags != 3 || n == 0) {
		code = INVALID;
	} else {
		struct thing *t = make(HOST, dev);
		t->size = n;
		t->base = *host = (uintptr_t)calloc(1, n);
	}
	END
}

DEF(cuMemFreeHost, hipHostFree, (uint64_t host)) {
	START(CALLED(cuMemFreeHost, hipHostFree))
	struct thing *t = at(HOST, host);
	if (t) {
		free((void *)(uintptr_t)host);
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
	} else if (around(host)) {
		code = REGISTERED;
	} else {
		struct thing *t = make(REGISTRATION, dev);
		t->base = host;
		t->size = n;
	}
	END
}

DEF(cuMemHostUnregister, hipHostUnregister, (uint64_t host)) {
	START(CALLED(cuMemHostUnregister, hipHostUnregister))
	struct thing *t = at(REGISTRATION, host);
	if (t)
		drop(t);
	else
		code = INVALID;
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

// A handle is where to find the memory: the descriptor of the process that has it.
struct handle {
	char text[64];
};

DEF(cuIpcGetMemHandle, hipIpcGetMemHandle, (struct handle * h, uint64_t addr)) {
	START(CALLED(cuIpcGetMemHandle, hipIpcGetMemHandle))
	struct thing *t = around(addr);
	memset(h, 0, sizeof(*h));
	if (t && t->kind == MEMORY && t->dev == dev)
		snprintf(h->text, sizeof(h->text), "/proc/%d/fd/%d %llu %llu", getpid(), t->fd, (unsigned long long)t->size, (unsigned long long)t->id);
	else
		code = INVALID;
	END
}

DEF(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle, (uint64_t * addr, struct handle h, unsigned flags)) {
	START(CALLED(cuIpcOpenMemHandle_v2, hipIpcOpenMemHandle))
	char path[64], own[32];
	unsigned long long size = 0, id = 0;
	snprintf(own, sizeof(own), "/proc/%d/", getpid());
	for (int i = 1; i < MOST && !code; i++)
		if (things[i].kind == OPENED && !memcmp(things[i].handle, h.text, sizeof(h.text)))
			code = MAPPED;
	if (!code && (flags != NAME(1, (FAKE_HIP > 5)) || sscanf(h.text, "%63s %llu %llu", path, &size, &id) != 3))
		code = INVALID;
	if (!code && !strncmp(path, own, strlen(own)))
		code = NO_CONTEXT; // as CUDA has it for a handle of this process
	int fd = code ? -1 : open(path, O_RDWR | O_CLOEXEC);
	if (!code && fd < 0)
		code = INVALID;
	if (!code) {
		struct thing *t = make(OPENED, dev);
		t->fd = fd;
		t->size = size;
		t->base = *addr = mapped(fd, size, 0, PROT_READ | PROT_WRITE);
		memcpy(t->handle, h.text, sizeof(h.text));
	}
	END
}

DEF(cuIpcCloseMemHandle, hipIpcCloseMemHandle, (uint64_t addr)) {
	START(CALLED(cuIpcCloseMemHandle, hipIpcCloseMemHandle))
	struct thing *t = at(OPENED, addr);
	if (t) {
		munmap((void *)(uintptr_t)addr, t->size);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}
