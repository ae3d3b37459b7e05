// SPDX-License-Identifier: MIT
//
// Addresses and memory made apart, and dma-bufs. Part of fake.c.

DEF(cuMemGetAllocationGranularity, hipMemGetAllocationGranularity, (size_t *n, const int *prop, int which)) {
	(void)which;
	OUTSIDE(CALLED(cuMemGetAllocationGranularity, hipMemGetAllocationGranularity))
	*n = 65536;
	if (prop[0] != 1 || prop[1] != 1 || prop[2] != 1)
		code = INVALID;
	END
}

// mapped_in tells whether something is mapped in a range.
static int mapped_in(uint64_t addr, size_t n) {
	for (int i = 1; i < most; i++)
		if (things[i].kind == MAPPING && overlap(things[i].base, things[i].size, addr, n))
			return 1;
	return 0;
}

// reserved tells whether a range is inside of one that was reserved, where nothing is mapped.
static int reserved(uint64_t addr, size_t n) {
	for (int i = 1; i < most; i++)
		if (things[i].kind == RESERVED && addr >= things[i].base && addr - things[i].base + n <= things[i].size)
			return !mapped_in(addr, n);
	return 0;
}

DEF(cuMemAddressReserve, hipMemAddressReserve, (uint64_t * addr, size_t n, size_t align, uint64_t where, unsigned long long flags)) {
	(void)align, (void)where, (void)flags;
	OUTSIDE(CALLED(cuMemAddressReserve, hipMemAddressReserve))
	void *p = n % 65536 ? MAP_FAILED : mmap(NULL, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		code = INVALID;
	} else {
		struct thing *t = make(RESERVED, 0);
		t->base = *addr = (uintptr_t)p;
		t->size = n;
	}
	END
}

DEF(cuMemAddressFree, hipMemAddressFree, (uint64_t addr, size_t n)) {
	OUTSIDE(CALLED(cuMemAddressFree, hipMemAddressFree))
	struct thing *t = at(RESERVED, addr);
	if (t && t->size == n && !mapped_in(addr, n)) {
		munmap((void *)(uintptr_t)addr, n);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}

DEF(cuMemCreate, hipMemCreate, (uint64_t * handle, size_t n, const int *prop, unsigned long long flags)) {
	(void)flags;
	OUTSIDE(CALLED(cuMemCreate, hipMemCreate))
	if (n == 0 || n % 65536 || prop[3] < 0 || prop[3] >= count() || n > available(prop[3])) {
		code = n == 0 || n % 65536 || prop[3] < 0 || prop[3] >= count() ? INVALID : NO_MEMORY;
	} else {
		struct thing *t = make(PHYSICAL, prop[3]);
		new_file(t, n);
		*handle = name_of(t);
	}
	END
}

DEF(cuMemRelease, hipMemRelease, (uint64_t handle)) {
	OUTSIDE(CALLED(cuMemRelease, hipMemRelease))
	struct thing *t = named(PHYSICAL, handle);
	if (t)
		drop(t);
	else
		code = INVALID;
	END
}

DEF(cuMemMap, hipMemMap, (uint64_t addr, size_t n, size_t offset, uint64_t handle, unsigned long long flags)) {
	(void)flags;
	OUTSIDE(CALLED(cuMemMap, hipMemMap))
	struct thing *t = named(PHYSICAL, handle), *m;
	if (!t || offset || n > t->size || n % 65536 || !reserved(addr, n) || !mapped(t->fd, n, addr, PROT_NONE)) {
		code = INVALID;
	} else {
		m = make(MAPPING, t->dev);
		m->fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
		m->base = addr;
		m->size = n;
	}
	END
}

DEF(cuMemUnmap, hipMemUnmap, (uint64_t addr, size_t n)) {
	OUTSIDE(CALLED(cuMemUnmap, hipMemUnmap))
	struct thing *t = leaving(CALLED(cuMemUnmap, hipMemUnmap), MAPPING, addr);
	if (t && t->size == n) {
		mmap((void *)(uintptr_t)addr, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		drop(t);
	} else {
		code = INVALID;
	}
	END
}

DEF(cuMemSetAccess, hipMemSetAccess, (uint64_t addr, size_t n, const int *desc, size_t ndesc)) {
	OUTSIDE(CALLED(cuMemSetAccess, hipMemSetAccess))
	for (size_t i = 0; i < ndesc; i++)
		if (desc[3 * i] != 1 || desc[3 * i + 1] >= count() || desc[3 * i + 2] != 3)
			code = INVALID;
	if (!code && (!around(addr) || mprotect((void *)(uintptr_t)addr, n, PROT_READ | PROT_WRITE)))
		code = INVALID;
	END
}

DEF(cuMemExportToShareableHandle, hipMemExportToShareableHandle, (int *fd, uint64_t handle, int type, unsigned long long flags)) {
	(void)flags;
	OUTSIDE(CALLED(cuMemExportToShareableHandle, hipMemExportToShareableHandle))
	struct thing *t = named(PHYSICAL, handle);
	*fd = t && type == 1 ? fcntl(t->fd, F_DUPFD_CLOEXEC, 0) : -1;
	if (*fd < 0)
		code = INVALID;
	END
}

DEF(cuMemImportFromShareableHandle, hipMemImportFromShareableHandle, (uint64_t * handle, void *from, int type)) {
	START(CALLED(cuMemImportFromShareableHandle, hipMemImportFromShareableHandle))
	int fd = fcntl(NAME((int)(uintptr_t)from, FAKE_HIP == 7 ? (int)(uintptr_t)from : *(int *)from), F_DUPFD_CLOEXEC, 0); // HIP before 7.1 takes the address
	char path[64], is[128] = "";
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (fd < 0 || type != 1 || readlink(path, is, sizeof(is) - 1) < 0 || strncmp(is, "/memfd:mori-gpu-", 16)) {
		if (fd >= 0)
			close(fd); // a file of another kind
		code = INVALID;
	} else {
		struct thing *t = make(PHYSICAL, dev);
		t->fd = fd;
		t->size = (uint64_t)lseek(fd, 0, SEEK_END);
		t->handle[0] = 1; // another's: it takes no memory of the device
		*handle = name_of(t);
	}
	END
}

#if !defined(FAKE_HIP) || FAKE_HIP > 5
// A dma-buf is the file of the memory, opened once more: its position has the first page and, below, how many there are.
enum { PAGE = 4096, PAGES_BITS = 24 };

// exported makes one of n bytes at addr, which are whole pages of one allocation, or answers a code.
static int exported(int *fd, uint64_t addr, uint64_t n) {
	struct thing *t = around(addr);
	char path[64];
	if (!t || t->kind == HOST || t->kind == REGISTRATION || t->kind == VARIABLE)
		return INVALID;
	if (t->kind == OPENED)
		return NOT_SUPPORTED; // another process's
	uint64_t first = addr - t->base;
	if (first % PAGE || n % PAGE || n == 0 || first + n > (t->size + PAGE - 1) / PAGE * PAGE)
		return INVALID;
	if (n / PAGE >> PAGES_BITS)
		misuse("a dma-buf of %llu bytes", (unsigned long long)n);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", t->fd);
	*fd = open(path, O_RDWR); // as drivers do it: whoever wants it closed in other programs says so
	if (*fd < 0 || lseek(*fd, (off_t)(first / PAGE << PAGES_BITS | n / PAGE), SEEK_SET) < 0)
		misuse("no dma-buf of %llu bytes: %s", (unsigned long long)n, strerror(errno));
	return 0;
}

#ifdef FAKE_HIP
// whole exports all of the allocation around a range, as AMD's drivers do.
static int whole(int *fd, uint64_t addr, uint64_t n, uint64_t *offset) {
	struct thing *t = around(addr);
	if (!t || n == 0 || addr - t->base + n > (t->size + PAGE - 1) / PAGE * PAGE)
		return INVALID;
	*offset = addr - t->base;
	return exported(fd, t->base, (t->size + PAGE - 1) / PAGE * PAGE);
}
#endif

#if !defined(FAKE_HIP) || FAKE_HIP > 6
DEF(cuMemGetHandleForAddressRange, hipMemGetHandleForAddressRange, (int *fd, uint64_t addr, size_t n, int type, unsigned long long flags)) {
	START(CALLED(cuMemGetHandleForAddressRange, hipMemGetHandleForAddressRange))
	if (type != 1 || flags)
		code = INVALID;
	else
		code = NAME(exported(fd, addr, n), whole(fd, addr, n, &(uint64_t){0}));
	END
}
#endif
#endif
