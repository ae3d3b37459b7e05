// SPDX-License-Identifier: MIT

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "abi.h"

// X(field, library, function, version that has it)
#define SYMBOLS(X) \
	X(list, verbs, ibv_get_device_list, "IBVERBS_1.1") \
	X(unlist, verbs, ibv_free_device_list, "IBVERBS_1.1") \
	X(name, verbs, ibv_get_device_name, "IBVERBS_1.1") \
	X(close, verbs, ibv_close_device, "IBVERBS_1.1") \
	X(supported, mlx5, mlx5dv_is_supported, "MLX5_1.8") \
	X(open, mlx5, mlx5dv_open_device, "MLX5_1.7") \
	X(general, mlx5, mlx5dv_devx_general_cmd, "MLX5_1.7") \
	X(create, mlx5, mlx5dv_devx_obj_create, "MLX5_1.7") \
	X(modify, mlx5, mlx5dv_devx_obj_modify, "MLX5_1.7") \
	X(query, mlx5, mlx5dv_devx_obj_query, "MLX5_1.7") \
	X(destroy, mlx5, mlx5dv_devx_obj_destroy, "MLX5_1.7") \
	X(umem_reg, mlx5, mlx5dv_devx_umem_reg, "MLX5_1.7") \
	X(umem_dereg, mlx5, mlx5dv_devx_umem_dereg, "MLX5_1.7") \
	X(alloc_uar, mlx5, mlx5dv_devx_alloc_uar, "MLX5_1.7") \
	X(free_uar, mlx5, mlx5dv_devx_free_uar, "MLX5_1.7") \
	X(query_eqn, mlx5, mlx5dv_devx_query_eqn, "MLX5_1.7")

static struct {
#define X(field, lib, function, version) __typeof__(&function) field;
	SYMBOLS(X)
#undef X
} door;

#define AS(type, p) ((struct type *)(uintptr_t)(p))

static int failed(void) { return errno ? errno : EIO; }

static int answer(int rc) {
	if (rc == -1)
		return failed();
	return rc < 0 ? -rc : rc;
}

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
#define X(field, lib, function, version) {lib, #function, version, &door.field},
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

// devices lists the RDMA devices. A kernel without RDMA has none.
static int devices(struct ibv_device ***all, int *count) {
	*count = 0;
	errno = 0;
	*all = door.list(count);
	return *all || errno == ENOSYS || errno == ENOENT ? 0 : failed();
}

// names writes the names of all mlx5 devices, as many as n bytes hold.
static void names(struct ibv_device **all, int count, char *out, size_t n) {
	size_t used = 0;
	for (int i = 0; i < count && used < n; i++)
		if (door.supported(all[i]))
			used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : "", door.name(all[i]));
}

int mx_open(const char *name, uint64_t *context, char *others, size_t n) {
	struct ibv_device **all;
	int count, i = 0;
	others[0] = 0;
	int err = devices(&all, &count);
	if (err || !all)
		return err ? err : ENODEV;
	while (i < count && (strcmp(door.name(all[i]), name) || !door.supported(all[i])))
		i++;
	if (i < count) {
		struct mlx5dv_context_attr attr = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
		errno = 0;
		struct ibv_context *c = door.open(all[i], &attr);
		*context = (uintptr_t)c;
		err = c ? 0 : failed();
	} else {
		names(all, count, others, n);
		err = ENODEV;
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

int mx_umem(uint64_t context, uint64_t addr, uint64_t bytes, uint32_t access, uint64_t *umem, uint32_t *id) {
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
	struct mlx5dv_devx_uar *u = door.alloc_uar(AS(ibv_context, context), MLX5DV_UAR_ALLOC_TYPE_NC);
	if (!u)
		return failed();
	*uar = (uintptr_t)u;
	*reg = (uintptr_t)u->reg_addr;
	*page = u->page_id;
	return 0;
}

void mx_uar_free(uint64_t uar) { door.free_uar(AS(mlx5dv_devx_uar, uar)); }

int mx_eqn(uint64_t context, uint32_t *eqn) { return answer(door.query_eqn(AS(ibv_context, context), 0, eqn)); }
