// SPDX-License-Identifier: MIT
//
// What is HIP's own. Part of fake.c.

__attribute__((visibility("default"))) const char *hipGetErrorName(int code) { return code == NO_MEMORY ? "hipErrorOutOfMemory" : "hipErrorFake"; }
__attribute__((visibility("default"))) const char *hipGetErrorString(int code) { return code == NO_MEMORY ? "out of memory" : "fake error"; }

DEF(, hipGetLastError, (void)) {
	int was = last;
	last = 0;
	return was;
}

// hipPeekAtLastError is for the test that nothing is left there.
DEF(, hipPeekAtLastError, (void)) { return last; }

DEF(, hipRuntimeGetVersion, (int *v)) {
	*v = VERSION;
	return 0;
}

DEF(, hipGetDevice, (int *dev)) {
	*dev = current;
	return answer(told("hipGetDevice\0" "cuCtxGetDevice"));
}

DEF(, hipSetDevice, (int dev)) {
	int code = dev < 0 || dev >= count() ? BAD_DEVICE : told("hipSetDevice\0" "cuCtxPushCurrent_v2");
	if (!code)
		current = dev;
	return answer(code);
}

DEF(, hipGetDeviceProperties, (char *props, int dev)) {
	(void)dev;
	strcpy(props + 396, "gfx90a:sramecc+:xnack-");
	return 0;
}

#if FAKE_HIP > 5
DEF(, hipGetDevicePropertiesR0600, (char *props, int dev)) {
	(void)dev;
	strcpy(props + 1160, "gfx942:sramecc+:xnack-");
	return 0;
}
#endif

DEF(, hipExtGetLinkTypeAndHopCount, (int dev, int peer, uint32_t *type, uint32_t *hops)) {
	*type = dev < 2 && peer < 2 ? 4 : 2;
	*hops = 1;
	return 0;
}

DEF(, hipDeviceEnablePeerAccess, (int peer, unsigned flags)) {
	(void)flags;
	START("hipDeviceEnablePeerAccess\0" "cuCtxEnablePeerAccess")
	code = enabled(dev, peer);
	END
}

DEF(, hipPointerGetAttributes, (void *to, uint64_t addr)) {
	struct {
		int type, device;
		uint64_t device_addr, host_addr;
		int managed;
		unsigned flags;
	} *out = to;
	OUTSIDE("hipPointerGetAttributes\0" "cuPointerGetAttributes")
	struct thing *t = around(addr);
	memset(out, 0, sizeof(*out));
	if (t) {
		int host = t->kind == HOST || t->kind == REGISTRATION;
		out->type = host ? FAKE_HIP > 5 : 1 + (FAKE_HIP > 5); // version 6 put unregistered memory first
		out->device = t->dev;
		out->device_addr = addr;
		out->host_addr = host ? addr : 0;
	} else if (FAKE_HIP == 5) {
		code = INVALID;
	}
	END
}

// The runtime below HIP has it. Version 7 is emulated without, as where it is loaded apart.
#if FAKE_HIP == 6
DEF(, hsa_amd_portable_export_dmabuf, (uint64_t addr, size_t n, int *fd, uint64_t *offset)) {
	int code = told("hsa_amd_portable_export_dmabuf\0" "cuMemGetHandleForAddressRange");
	if (code)
		return 0x1000 + code; // HSA_STATUS_ERROR and those after it
	pthread_mutex_lock(&lock);
	code = whole(fd, addr, n, offset);
	pthread_mutex_unlock(&lock);
	return code ? 0x1003 : 0; // ..._INVALID_ALLOCATION
}
#endif
