// SPDX-License-Identifier: MIT
//
// A header that layout_test.go compares with vendor.h.

#include <stdint.h>

struct other;

enum same_kind { SAME_ZERO = 0, SAME_LAST = 7, SAME_MACRO = 512, SAME_MINUS = -1 };

enum { WRONG_VALUE = 3 };

struct same {
	uint64_t unused_head;
	unsigned count;
	uint32_t one_of;
	union {
		struct {
			uint64_t addr, unused_more;
		} deep;
	} in;
	enum same_kind kind;
	int (*call)(struct same *, struct other **, uint32_t);
	char name[16];
};

struct wrong_size {
	uint32_t a;
};

struct wrong_members {
	uint32_t moved;
	uint32_t pad;
	uint32_t narrow;
	int32_t sign;
	void (*call)(struct other *, int);
	uint64_t renamed;
	uint8_t list[4];
	uint8_t unused_tail[4];
};

struct ours_alone {
	int a;
};
