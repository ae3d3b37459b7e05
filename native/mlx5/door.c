// SPDX-License-Identifier: MIT

#define _GNU_SOURCE
#include "shim.h"

#include <errno.h>
#include <stdio.h>

#if __has_include(<infiniband/mlx5dv.h>) && !defined(MORI_WITHOUT_VERBS)

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>
#include <string.h>

// X(field, library, name, version, result, arguments)
#define SYMBOLS(X) \
	X(list, verbs, "ibv_get_device_list", "IBVERBS_1.1", struct ibv_device **, (int *n)) \
	X(unlist, verbs, "ibv_free_device_list", "IBVERBS_1.1", void, (struct ibv_device **)) \
	X(name, verbs, "ibv_get_device_name", "IBVERBS_1.1", const char *, (struct ibv_device *)) \
	X(close, verbs, "ibv_close_device", "IBVERBS_1.1", int, (struct ibv_context *)) \
	X(supported, mlx5, "mlx5dv_is_supported", "MLX5_1.8", bool, (struct ibv_device *)) \
	X(open, mlx5, "mlx5dv_open_device", "MLX5_1.7", struct ibv_context *, (struct ibv_device *, struct mlx5dv_context_attr *)) \
	X(general, mlx5, "mlx5dv_devx_general_cmd", "MLX5_1.7", int, (struct ibv_context *, const void *, size_t, void *, size_t)) \
	X(create, mlx5, "mlx5dv_devx_obj_create", "MLX5_1.7", struct mlx5dv_devx_obj *, (struct ibv_context *, const void *, size_t, void *, size_t)) \
	X(modify, mlx5, "mlx5dv_devx_obj_modify", "MLX5_1.7", int, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t)) \
	X(query, mlx5, "mlx5dv_devx_obj_query", "MLX5_1.7", int, (struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t)) \
	X(destroy, mlx5, "mlx5dv_devx_obj_destroy", "MLX5_1.7", int, (struct mlx5dv_devx_obj *)) \
	X(umem_reg, mlx5, "mlx5dv_devx_umem_reg", "MLX5_1.7", struct mlx5dv_devx_umem *, (struct ibv_context *, void *, size_t, uint32_t)) \
	X(umem_dereg, mlx5, "mlx5dv_devx_umem_dereg", "MLX5_1.7", int, (struct mlx5dv_devx_umem *)) \
	X(alloc_uar, mlx5, "mlx5dv_devx_alloc_uar", "MLX5_1.7", struct mlx5dv_devx_uar *, (struct ibv_context *, uint32_t)) \
	X(free_uar, mlx5, "mlx5dv_devx_free_uar", "MLX5_1.7", void, (struct mlx5dv_devx_uar *)) \
	X(query_eqn, mlx5, "mlx5dv_devx_query_eqn", "MLX5_1.7", int, (struct ibv_context *, uint32_t, uint32_t *))

static struct {
#define X(field, lib, name, version, result, args) result(*field) args;
	SYMBOLS(X)
#undef X
} door;

#define AS(type, p) ((struct type *)(uintptr_t)(p))

// Doorbells in memory that is not combined: a GPU that stores to combining ones may fault.
enum { UAR_NC = 1 };

static int failed(void) { return errno ? errno : EIO; }

static int answer(int rc) {
	if (rc == -1)
		return failed();
	return rc < 0 ? -rc : rc;
}

int mx_built(void) { return 1; }

int mx_load(char *why, size_t n) {
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *mlx5 = verbs ? dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!mlx5) {
		snprintf(why, n, "%s: install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core", dlerror());
		return ENOENT;
	}
	const struct {
		void *lib;
		const char *name, *version;
		void *at;
	} wanted[] = {
#define X(field, lib, name, version, result, args) {lib, name, version, &door.field},
		SYMBOLS(X)
#undef X
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		void *sym = dlvsym(wanted[i].lib, wanted[i].name, wanted[i].version);
		if (!sym)
			sym = dlsym(wanted[i].lib, wanted[i].name);
		if (!sym) {
			snprintf(why, n, "no %s of %s: libmlx5.so.1 is too old", wanted[i].name, wanted[i].version);
			return ENOSYS;
		}
		memcpy(wanted[i].at, &sym, sizeof(sym));
	}
	return 0;
}

int mx_open(const char *name, uint64_t *context) {
	int count = 0;
	errno = 0;
	struct ibv_device **all = door.list(&count);
	if (!all)
		return failed();
	int err = ENODEV;
	for (int i = 0; i < count; i++) {
		if (strcmp(door.name(all[i]), name))
			continue;
		if (!door.supported(all[i])) {
			err = EOPNOTSUPP;
			break;
		}
		struct mlx5dv_context_attr attr = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
		errno = 0;
		struct ibv_context *c = door.open(all[i], &attr);
		*context = (uintptr_t)c;
		err = c ? 0 : failed();
		break;
	}
	door.unlist(all);
	return err;
}

int mx_close(uint64_t context) { return answer(door.close(AS(ibv_context, context))); }

int mx_general(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen) {
	return answer(door.general(AS(ibv_context, context), in, inlen, out, outlen));
}

int mx_create(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen, uint64_t *object) {
	errno = 0;
	struct mlx5dv_devx_obj *o = door.create(AS(ibv_context, context), in, inlen, out, outlen);
	*object = (uintptr_t)o;
	return o ? 0 : failed();
}

int mx_modify(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen) {
	return answer(door.modify(AS(mlx5dv_devx_obj, object), in, inlen, out, outlen));
}

int mx_query(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen) {
	return answer(door.query(AS(mlx5dv_devx_obj, object), in, inlen, out, outlen));
}

int mx_destroy(uint64_t object) { return answer(door.destroy(AS(mlx5dv_devx_obj, object))); }

int mx_umem(uint64_t context, uint64_t addr, uint64_t bytes, uint64_t *umem, uint32_t *id) {
	const uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	errno = 0;
	struct mlx5dv_devx_umem *u = door.umem_reg(AS(ibv_context, context), (void *)(uintptr_t)addr, bytes, access);
	if (!u)
		return failed();
	*umem = (uintptr_t)u;
	*id = u->umem_id;
	return 0;
}

int mx_umem_free(uint64_t umem) { return answer(door.umem_dereg(AS(mlx5dv_devx_umem, umem))); }

int mx_uar(uint64_t context, uint64_t *uar, uint64_t *reg, uint32_t *page) {
	errno = 0;
	struct mlx5dv_devx_uar *u = door.alloc_uar(AS(ibv_context, context), UAR_NC);
	if (!u)
		return failed();
	*uar = (uintptr_t)u;
	*reg = (uintptr_t)u->reg_addr;
	*page = u->page_id;
	return 0;
}

void mx_uar_free(uint64_t uar) { door.free_uar(AS(mlx5dv_devx_uar, uar)); }

int mx_eqn(uint64_t context, uint32_t *eqn) { return answer(door.query_eqn(AS(ibv_context, context), 0, eqn)); }

#else // without the header only mx_load is ever called

int mx_built(void) { return 0; }

int mx_load(char *why, size_t n) {
	snprintf(why, n, "built without mlx5dv.h: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel, go clean -cache, and build again");
	return ENOSYS;
}

int mx_open(const char *name, uint64_t *context) { return ENOSYS; }
int mx_close(uint64_t context) { return ENOSYS; }
int mx_general(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen) { return ENOSYS; }
int mx_create(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen, uint64_t *object) { return ENOSYS; }
int mx_modify(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen) { return ENOSYS; }
int mx_query(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen) { return ENOSYS; }
int mx_destroy(uint64_t object) { return ENOSYS; }
int mx_umem(uint64_t context, uint64_t addr, uint64_t bytes, uint64_t *umem, uint32_t *id) { return ENOSYS; }
int mx_umem_free(uint64_t umem) { return ENOSYS; }
int mx_uar(uint64_t context, uint64_t *uar, uint64_t *reg, uint32_t *page) { return ENOSYS; }
void mx_uar_free(uint64_t uar) {}
int mx_eqn(uint64_t context, uint32_t *eqn) { return ENOSYS; }

#endif
