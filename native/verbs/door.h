// SPDX-License-Identifier: MIT
//
// What load.c takes from the library. Posting, polling and arming go through the tables of its objects, by the header's inline functions.

#ifndef MORI_VERBS_DOOR_H
#define MORI_VERBS_DOOR_H

#include <errno.h>
#include <infiniband/verbs.h>

#include "shim.h"

// X(field, name, version that has it, needed, result, arguments)
#define VB_SYMBOLS(X) \
	X(get_device_list, "ibv_get_device_list", "IBVERBS_1.1", 1, struct ibv_device **, (int *n)) \
	X(free_device_list, "ibv_free_device_list", "IBVERBS_1.1", 1, void, (struct ibv_device **list)) \
	X(get_device_name, "ibv_get_device_name", "IBVERBS_1.1", 1, const char *, (struct ibv_device *)) \
	X(get_device_guid, "ibv_get_device_guid", "IBVERBS_1.1", 1, __be64, (struct ibv_device *)) \
	X(open_device, "ibv_open_device", "IBVERBS_1.1", 1, struct ibv_context *, (struct ibv_device *)) \
	X(close_device, "ibv_close_device", "IBVERBS_1.1", 1, int, (struct ibv_context *)) \
	X(query_device, "ibv_query_device", "IBVERBS_1.1", 1, int, (struct ibv_context *, struct ibv_device_attr *)) \
	X(query_port, "ibv_query_port", "IBVERBS_1.1", 1, int, (struct ibv_context *, uint8_t, struct ibv_port_attr *)) \
	X(query_gid, "ibv_query_gid", "IBVERBS_1.1", 1, int, (struct ibv_context *, uint8_t, int, union ibv_gid *)) \
	X(get_async_event, "ibv_get_async_event", "IBVERBS_1.1", 1, int, (struct ibv_context *, struct ibv_async_event *)) \
	X(ack_async_event, "ibv_ack_async_event", "IBVERBS_1.1", 1, void, (struct ibv_async_event *)) \
	X(alloc_pd, "ibv_alloc_pd", "IBVERBS_1.1", 1, struct ibv_pd *, (struct ibv_context *)) \
	X(dealloc_pd, "ibv_dealloc_pd", "IBVERBS_1.1", 1, int, (struct ibv_pd *)) \
	X(reg_mr, "ibv_reg_mr", "IBVERBS_1.1", 1, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int access)) \
	X(dereg_mr, "ibv_dereg_mr", "IBVERBS_1.1", 1, int, (struct ibv_mr *)) \
	X(create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0", 1, struct ibv_comp_channel *, (struct ibv_context *)) \
	X(destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0", 1, int, (struct ibv_comp_channel *)) \
	X(create_cq, "ibv_create_cq", "IBVERBS_1.1", 1, struct ibv_cq *, (struct ibv_context *, int, void *, struct ibv_comp_channel *, int vector)) \
	X(destroy_cq, "ibv_destroy_cq", "IBVERBS_1.1", 1, int, (struct ibv_cq *)) \
	X(get_cq_event, "ibv_get_cq_event", "IBVERBS_1.1", 1, int, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
	X(ack_cq_events, "ibv_ack_cq_events", "IBVERBS_1.1", 1, void, (struct ibv_cq *, unsigned int)) \
	X(create_qp, "ibv_create_qp", "IBVERBS_1.1", 1, struct ibv_qp *, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	X(modify_qp, "ibv_modify_qp", "IBVERBS_1.1", 1, int, (struct ibv_qp *, struct ibv_qp_attr *, int mask)) \
	X(query_qp, "ibv_query_qp", "IBVERBS_1.1", 1, int, (struct ibv_qp *, struct ibv_qp_attr *, int mask, struct ibv_qp_init_attr *)) \
	X(destroy_qp, "ibv_destroy_qp", "IBVERBS_1.1", 1, int, (struct ibv_qp *)) \
	X(reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8", 0, struct ibv_mr *, (struct ibv_pd *, void *, size_t, uint64_t, unsigned int access)) \
	X(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12", 0, struct ibv_mr *, (struct ibv_pd *, uint64_t, size_t, uint64_t, int fd, int access)) \
	X(query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11", 0, ssize_t, (struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t, size_t))

struct vb_door {
#define X(field, name, version, needed, result, args) result(*field) args;
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
