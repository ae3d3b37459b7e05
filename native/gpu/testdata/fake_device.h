// SPDX-License-Identifier: MIT
//
// What the driver and its devices are. Part of fake.c.

DEF(cuInit, hipInit, (unsigned flags)) {
	(void)flags;
	int code = told(CALLED(cuInit, hipInit));
	if (!code && forked)
		code = FORKED;
	if (!code && count() == 0)
		code = NO_DEVICE;
	if (!code) {
		pthread_mutex_lock(&lock);
		inited = 1;
		pthread_mutex_unlock(&lock);
	}
	return answer(code);
}

DEF(cuDriverGetVersion, hipDriverGetVersion, (int *v)) {
	*v = (int)setting("FAKE_GPU_DRIVER", VERSION);
	return 0;
}

DEF(cuDeviceGetCount, hipGetDeviceCount, (int *n)) {
	*n = count();
	return answer(told(CALLED(cuDeviceGetCount, hipGetDeviceCount)));
}

DEF(cuDeviceGetName, hipDeviceGetName, (char *to, int n, int dev)) {
	snprintf(to, (size_t)n, "Emulated GPU %d", dev);
	return answer(dev < count() ? told(CALLED(cuDeviceGetName, hipDeviceGetName)) : BAD_DEVICE);
}

DEF(cuDeviceGetUuid_v2, hipDeviceGetUuid, (unsigned char *to, int dev)) {
	for (int i = 0; i < 16; i++)
		to[i] = (unsigned char)(16 * dev + i);
	return 0;
}

DEF(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *to, int n, int dev)) {
	snprintf(to, (size_t)n, "0000:%02X:00.0", 0xa0 + dev);
	return 0;
}

DEF(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t *n, int dev)) {
	(void)dev;
	*n = bytes();
	return 0;
}

DEF(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *v, int attr, int dev)) {
	static const int known[][2] = {
#ifdef FAKE_HIP
		{63, 304}, {87, 64}, {23, 9}, {61, 4}, {89, FAKE_HIP > 5}, {56, 1024}, {74, 65536}, {2, 4},
#else
		{16, 132}, {10, 32}, {102, 1}, {103, 1}, {124, 1}, {1, 1024}, {8, 49152}, {97, 232448}, {40, 3},
#endif
	};
	(void)dev;
	*v = 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i][0] == attr)
			*v = known[i][1];
#ifndef FAKE_HIP
	int arch = (int)setting("FAKE_GPU_ARCH", 90);
	if (attr == 75)
		*v = arch / 10;
	if (attr == 76)
		*v = arch % 10;
#endif
	return 0;
}

// reaches tells who has a link: a third device and those after it are out of reach.
static int reaches(int dev, int peer) { return dev == peer || (dev < 2 && peer < 2); }

DEF(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer, (int *can, int dev, int peer)) {
	*can = dev != peer && reaches(dev, peer);
	return answer(dev < count() && peer < count() ? 0 : BAD_DEVICE);
}

DEF(cuDeviceGetP2PAttribute, hipDeviceGetP2PAttribute, (int *v, int attr, int dev, int peer)) {
	(void)dev, (void)peer;
	*v = attr == NAME(3, 2);
	return 0;
}

// available is what a device has left.
static uint64_t available(int dev) {
	uint64_t used = 0;
	for (int i = 1; i < most; i++)
		if ((things[i].kind == MEMORY || (things[i].kind == PHYSICAL && !things[i].handle[0])) && things[i].dev == dev)
			used += things[i].size;
	return used < bytes() ? bytes() - used : 0;
}

DEF(cuMemGetInfo_v2, hipMemGetInfo, (size_t *left, size_t *total)) {
	START(CALLED(cuMemGetInfo_v2, hipMemGetInfo))
	*total = bytes();
	*left = available(dev);
	END
}
