// SPDX-License-Identifier: MIT
//
// What load.c takes from the library. Posting, polling and arming go through the tables of its
// objects, by the inline functions of abi.h.

#ifndef MORI_VERBS_DOOR_H
#define MORI_VERBS_DOOR_H

#include <errno.h>

#include "abi.h"
#include "shim.h"

// X(field, function, version that has it, needed)
#define VB_SYMBOLS(X) \
	X(get_device_list, ibv_get_device_list, "IBVERBS_1.1", 1) \
	X(free_device_list, ibv_free_device_list, "IBVERBS_1.1", 1) \
	X(get_device_name, ibv_get_device_name, "IBVERBS_1.1", 1) \
	X(get_device_guid, ibv_get_device_guid, "IBVERBS_1.1", 1) \
	X(open_device, ibv_open_device, "IBVERBS_1.1", 1) \
	X(close_device, ibv_close_device, "IBVERBS_1.1", 1) \
	X(query_device, ibv_query_device, "IBVERBS_1.1", 1) \
	X(query_port, ibv_query_port, "IBVERBS_1.1", 1) \
	X(query_gid, ibv_query_gid, "IBVERBS_1.1", 1) \
	X(get_async_event, ibv_get_async_event, "IBVERBS_1.1", 1) \
	X(ack_async_event, ibv_ack_async_event, "IBVERBS_1.1", 1) \
	X(alloc_pd, ibv_alloc_pd, "IBVERBS_1.1", 1) \
	X(dealloc_pd, ibv_dealloc_pd, "IBVERBS_1.1", 1) \
	X(reg_mr, ibv_reg_mr, "IBVERBS_1.1", 1) \
	X(dereg_mr, ibv_dereg_mr, "IBVERBS_1.1", 1) \
	X(create_comp_channel, ibv_create_comp_channel, "IBVERBS_1.0", 1) \
	X(destroy_comp_channel, ibv_destroy_comp_channel, "IBVERBS_1.0", 1) \
	X(create_cq, ibv_create_cq, "IBVERBS_1.1", 1) \
	X(destroy_cq, ibv_destroy_cq, "IBVERBS_1.1", 1) \
	X(get_cq_event, ibv_get_cq_event, "IBVERBS_1.1", 1) \
	X(ack_cq_events, ibv_ack_cq_events, "IBVERBS_1.1", 1) \
	X(create_qp, ibv_create_qp, "IBVERBS_1.1", 1) \
	X(modify_qp, ibv_modify_qp, "IBVERBS_1.1", 1) \
	X(query_qp, ibv_query_qp, "IBVERBS_1.1", 1) \
	X(destroy_qp, ibv_destroy_qp, "IBVERBS_1.1", 1) \
	X(reg_mr_iova2, ibv_reg_mr_iova2, "IBVERBS_1.8", 0) \
	X(reg_dmabuf_mr, ibv_reg_dmabuf_mr, "IBVERBS_1.12", 0) \
	X(query_gid_table, _ibv_query_gid_table, "IBVERBS_1.11", 0)

struct vb_door {
#define X(field, function, version, needed) __typeof__(&function) field;
	VB_SYMBOLS(X)
#undef X
};

extern struct vb_door vb_door;

#define AS(type, p) ((struct type *)(uintptr_t)(p))

// The answer of a call that says 0, an errno, a negated one, or -1 with errno set.
static inline int vb_rc(int rc) {
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

// The answer of a call that makes an object.
static inline int vb_made(const void *object, uint64_t *out) {
	*out = (uintptr_t)object;
	if (object)
		return 0;
	return errno ? errno : EIO;
}

#endif
