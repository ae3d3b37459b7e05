// SPDX-License-Identifier: MIT
//
// What load.c takes from the library. Everything else is reached through the tables of its objects.

#ifndef MORI_LIBFABRIC_DOOR_H
#define MORI_LIBFABRIC_DOOR_H

#include <rdma/fabric.h>

struct lf_door {
	int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags, const struct fi_info *hints, struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
	const char *(*strerror)(int err);
	uint32_t (*version)(void);
};

extern struct lf_door lf_door;

#endif
