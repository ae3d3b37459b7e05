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

// The calls of testdata/peer.c. constant returns the value of a constant of the header by its place
// in a list; -1 past the end.
struct peer {
	void (*control)(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn, uint8_t flags, uint8_t ds, uint32_t imm);
	void (*data)(void *seg, uint32_t bytes, uint32_t key, uint64_t addr);
	void (*remote)(void *seg, uint64_t addr, uint32_t key);
	void (*atomic)(void *seg, uint64_t swap_add, uint64_t compare);
	void (*inline_head)(void *seg, uint32_t bytes);
	void (*parse_cqe)(const void *cqe, struct peer_cqe *out);
	void (*set)(void *mailbox, uint32_t value, size_t bit, size_t bits);
	uint32_t (*get)(const void *mailbox, size_t bit, size_t bits);
	int64_t (*constant)(int i, const char **name);
};

#endif
