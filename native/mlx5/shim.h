// SPDX-License-Identifier: MIT
//
// The flat C side of package mlx5. Calls answer 0 or an errno; objects are addresses as numbers.

#ifndef MORI_MLX5_SHIM_H
#define MORI_MLX5_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum { MX_WHY = 512 };

int mx_load(char *why, size_t n);
// ENODEV: there is no mlx5 device of the name; others are the mlx5 devices that there are.
int mx_open(const char *name, uint64_t *context, char *others, size_t n);
int mx_close(uint64_t context);
int mx_general(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen);
int mx_create(uint64_t context, const void *in, size_t inlen, void *out, size_t outlen, uint64_t *object);
int mx_modify(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen);
int mx_query(uint64_t object, const void *in, size_t inlen, void *out, size_t outlen);
int mx_destroy(uint64_t object);
int mx_umem(uint64_t context, uint64_t addr, uint64_t bytes, uint32_t access, uint64_t *umem, uint32_t *id);
int mx_umem_free(uint64_t umem);
int mx_uar(uint64_t context, uint64_t *uar, uint64_t *reg, uint32_t *page);
void mx_uar_free(uint64_t uar);
int mx_eqn(uint64_t context, uint32_t *eqn);

#endif
