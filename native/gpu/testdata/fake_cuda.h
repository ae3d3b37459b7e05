// SPDX-License-Identifier: MIT
//
// What is CUDA's own. Part of fake.c.

DEF(cuGetErrorName, , (int code, const char **name)) {
	*name = code == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : code == OLD_PTX ? "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" : code == NOT_READY ? "CUDA_ERROR_NOT_READY" : code == FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR_FAKE";
	return code == 999 ? INVALID : 0;
}

DEF(cuGetErrorString, , (int code, const char **text)) {
	*text = code == NO_MEMORY ? "out of memory" : "fake error";
	return 0;
}

// The example of a kernel of one's own calls it; package gpu takes ordinals for devices, which they are.
DEF(cuDeviceGet, , (int *device, int ordinal)) {
	OUTSIDE("cuDeviceGet")
	if (ordinal < 0 || ordinal >= count()) {
		code = BAD_DEVICE;
	} else {
		*device = ordinal;
	}
	END
}

DEF(cuDevicePrimaryCtxRetain, , (void **ctx, int which)) {
	OUTSIDE("cuDevicePrimaryCtxRetain")
	if (which < 0 || which >= count()) {
		code = BAD_DEVICE;
	} else {
		*ctx = &contexts[which];
	}
	END
}

DEF(cuCtxPushCurrent_v2, , (void *ctx)) {
	int code = told("cuCtxPushCurrent_v2");
	if (!code && depth == 64)
		code = INVALID;
	if (!code)
		stack[depth++] = ctx;
	return code;
}

DEF(cuCtxPopCurrent_v2, , (void **ctx)) {
	if (!depth)
		return NO_CONTEXT;
	*ctx = stack[--depth];
	return 0;
}

DEF(cuCtxGetCurrent, , (void **ctx)) {
	*ctx = depth ? stack[depth - 1] : NULL;
	return 0;
}

DEF(cuCtxGetDevice, , (int *dev)) {
	*dev = here();
	return *dev < 0 ? NO_CONTEXT : 0;
}

DEF(cuCtxEnablePeerAccess, , (void *ctx, unsigned flags)) {
	(void)flags;
	START("cuCtxEnablePeerAccess")
	code = enabled(dev, (int)((char *)ctx - contexts));
	END
}

DEF(cuPointerGetAttributes, , (unsigned n, int *attrs, void **values, uint64_t addr)) {
	OUTSIDE("cuPointerGetAttributes")
	struct thing *t = around(addr);
	int host = t && (t->kind == HOST || t->kind == REGISTRATION);
	for (unsigned i = 0; i < n; i++)
		switch (attrs[i]) {
		case 2: *(unsigned *)values[i] = !t ? 0 : host ? 1 : 2; break;
		case 3: *(uint64_t *)values[i] = t && here() >= 0 ? addr : 0; break;
		case 4: *(uint64_t *)values[i] = host ? addr : 0; break;
		case 8: *(unsigned *)values[i] = 0; break;
		case 9: *(int *)values[i] = t ? t->dev : -2; break;
		case 10: *(int *)values[i] = t && t->kind == MEMORY; break;
		case 11: *(uint64_t *)values[i] = t ? t->base : 0; break;
		case 12: *(uint64_t *)values[i] = t ? t->size : 0; break;
		case 14: *(uint64_t *)values[i] = t && t->kind == MAPPING; break;
		case 15: *(int *)values[i] = t != NULL; break;
		default: code = INVALID;
		}
	END
}
