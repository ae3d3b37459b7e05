// SPDX-License-Identifier: MIT
//
// A libibverbs.so.1 and a libmlx5.so.1 in one, for mlx5_test.go. MORI_TEST_DEVICES lists the
// devices, such as "mlx5_0,rxe0"; unset, the kernel has no RDMA. Devices called mlx5... are mlx5
// devices. They cannot be opened.

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

struct ibv_device {
	char name[32];
};

static struct ibv_device devices[MOST];
static struct ibv_device *list[MOST + 1];

struct ibv_device **ibv_get_device_list(int *count) {
	const char *names = getenv("MORI_TEST_DEVICES");
	*count = 0;
	if (!names) {
		errno = ENOSYS;
		return NULL;
	}
	while (*names && *count < MOST) {
		size_t n = strcspn(names, ",");
		memcpy(devices[*count].name, names, n < 31 ? n : 31);
		list[*count] = &devices[*count];
		++*count;
		names += n + (names[n] == ',');
	}
	return list;
}

const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

bool mlx5dv_is_supported(struct ibv_device *d) { return strncmp(d->name, "mlx5", 4) == 0; }

void *mlx5dv_open_device(void) {
	errno = EACCES;
	return NULL;
}

#define UNUSED(name) \
	int name(void) { return ENOSYS; }

UNUSED(ibv_free_device_list)
UNUSED(ibv_close_device)
UNUSED(mlx5dv_devx_general_cmd)
UNUSED(mlx5dv_devx_obj_create)
UNUSED(mlx5dv_devx_obj_modify)
UNUSED(mlx5dv_devx_obj_query)
UNUSED(mlx5dv_devx_obj_destroy)
UNUSED(mlx5dv_devx_umem_reg)
UNUSED(mlx5dv_devx_umem_dereg)
UNUSED(mlx5dv_devx_alloc_uar)
UNUSED(mlx5dv_devx_free_uar)
UNUSED(mlx5dv_devx_query_eqn)
