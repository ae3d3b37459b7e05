// SPDX-License-Identifier: MIT
//
// What layout_test.go takes for a vendor's header.

#include <stdint.h>

typedef uint32_t word;

struct other;

#define SAME_MACRO (1 << 9)

enum same_kind { SAME_ZERO, SAME_LAST = 7, SAME_MINUS = -1 };

enum { WRONG_VALUE = 4, THEIRS_ALONE = 5 };

struct same {
	void *first;
	const word count;
	union {
		word one_of;
		int32_t other_of;
	};
	union {
		struct {
			uint64_t addr;
			uint32_t more;
		} deep;
	} in;
	enum same_kind kind;
	int (*call)(struct same *, struct other **, word);
	char name[16];
};

struct wrong_size {
	uint32_t a, b;
};

struct wrong_members {
	uint32_t pad;
	uint32_t moved;
	uint16_t narrow;
	uint32_t sign;
	void (*call)(struct other *, int, int);
	uint64_t named;
	uint8_t list[8];
};
