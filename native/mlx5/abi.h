// SPDX-License-Identifier: MIT
//
// The part of libmlx5's binary interface (mlx5dv) that package mlx5 uses, and the functions of
// libibverbs that find devices for it. Names, values and layouts are the library's; abi_test.go
// compares them with <infiniband/mlx5dv.h> where that is installed.

#ifndef MORI_MLX5_ABI_H
#define MORI_MLX5_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Types that are only passed on.
struct ibv_device;
struct ibv_context;
struct mlx5dv_devx_obj;

enum mlx5dv_context_attr_flags { MLX5DV_CONTEXT_FLAGS_DEVX = 1 };

// Doorbells in memory without write combining: a GPU that stores to combining ones may fault.
enum { MLX5DV_UAR_ALLOC_TYPE_NC = 1 };

struct mlx5dv_context_attr {
	uint32_t flags;
	uint64_t comp_mask;
};

struct mlx5dv_devx_umem {
	uint32_t umem_id;
};

struct mlx5dv_devx_uar {
	void *reg_addr, *base_addr;
	uint32_t page_id;
	off_t mmap_off;
	uint64_t comp_mask;
};

struct ibv_device **ibv_get_device_list(int *count);
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *);
int ibv_close_device(struct ibv_context *);

bool mlx5dv_is_supported(struct ibv_device *);
struct ibv_context *mlx5dv_open_device(struct ibv_device *, struct mlx5dv_context_attr *);
int mlx5dv_devx_general_cmd(struct ibv_context *, const void *in, size_t in_size, void *out, size_t out_size);
struct mlx5dv_devx_obj *mlx5dv_devx_obj_create(struct ibv_context *, const void *in, size_t in_size, void *out, size_t out_size);
int mlx5dv_devx_obj_modify(struct mlx5dv_devx_obj *, const void *in, size_t in_size, void *out, size_t out_size);
int mlx5dv_devx_obj_query(struct mlx5dv_devx_obj *, const void *in, size_t in_size, void *out, size_t out_size);
int mlx5dv_devx_obj_destroy(struct mlx5dv_devx_obj *);
struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *, void *addr, size_t size, uint32_t access);
int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *);
struct mlx5dv_devx_uar *mlx5dv_devx_alloc_uar(struct ibv_context *, uint32_t type);
void mlx5dv_devx_free_uar(struct mlx5dv_devx_uar *);
int mlx5dv_devx_query_eqn(struct ibv_context *, uint32_t vector, uint32_t *eqn);

#endif
