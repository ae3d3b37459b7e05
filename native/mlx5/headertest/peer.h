// SPDX-License-Identifier: MIT

#ifndef MORI_MLX5_PEER_H
#define MORI_MLX5_PEER_H

#include <stddef.h>
#include <stdint.h>

struct peer_cqe {
	uint8_t opcode, owner, format, syndrome, vendor;
	uint16_t counter;
	uint32_t bytes, imm, last;
};

int peer_built(void);
void peer_control(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn, uint8_t flags, uint8_t ds, uint32_t imm);
void peer_data(void *seg, uint32_t bytes, uint32_t key, uint64_t addr);
void peer_remote(void *seg, uint64_t addr, uint32_t key);
void peer_atomic(void *seg, uint64_t swap_add, uint64_t compare);
void peer_inline_head(void *seg, uint32_t bytes);
void peer_parse_cqe(const void *cqe, struct peer_cqe *out);
void peer_set(void *mailbox, uint32_t value, size_t bit, size_t bits);
uint32_t peer_get(const void *mailbox, size_t bit, size_t bits);

// The value of a constant of the header by its place in the list of constants.go; -1 behind the end.
int64_t peer_constant(int i, const char **name);

#endif
