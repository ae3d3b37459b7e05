// SPDX-License-Identifier: MIT
//
// All of shim.h where libibverbs' header is missing. Only vb_load and what comes before an object are ever called.

#include "shim.h"

#if !VB_HEADER

#include <errno.h>
#include <stdio.h>

int vb_built(void) { return 0; }
const char *vb_library(void) { return ""; }

int vb_load(char *why, size_t n) {
	snprintf(why, n, "built without libibverbs' headers: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel, go clean -cache, and build again");
	return ENOSYS;
}

#define NONE(name, ...) \
	int name(__VA_ARGS__) { return ENOSYS; }

NONE(vb_devices, struct vb_device *out, int max, int *n)
NONE(vb_open, const char *name, uint64_t *ctx)
NONE(vb_close, uint64_t ctx)
NONE(vb_query_device, uint64_t ctx, struct vb_device_attr *out)
NONE(vb_query_port, uint64_t ctx, int port, struct vb_port_attr *out)
NONE(vb_gid_table, uint64_t ctx, struct vb_gid *out, int max, int *n)
NONE(vb_query_gid, uint64_t ctx, int port, int index, uint8_t gid[16])
NONE(vb_async_event, uint64_t ctx, struct vb_event *out)
NONE(vb_alloc_pd, uint64_t ctx, uint64_t *pd)
NONE(vb_dealloc_pd, uint64_t pd)
NONE(vb_reg_mr, uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, uint64_t *mr, uint32_t keys[2])
NONE(vb_reg_dmabuf, uint64_t pd, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access, uint64_t *mr, uint32_t keys[2])
NONE(vb_dereg_mr, uint64_t mr)
NONE(vb_create_channel, uint64_t ctx, uint64_t *channel)
NONE(vb_next, uint64_t channel, uint64_t *token)
NONE(vb_destroy_channel, uint64_t channel)
NONE(vb_create_cq, uint64_t ctx, int entries, uint64_t channel, uint64_t token, uint64_t *cq)
NONE(vb_arm, uint64_t cq)
NONE(vb_destroy_cq, uint64_t cq)
NONE(vb_create_qp, uint64_t pd, struct vb_qp_init *init, uint64_t *qp, uint32_t *num)
NONE(vb_qp_init, uint64_t qp, int port, uint32_t access)
NONE(vb_qp_rtr, uint64_t qp, const struct vb_rtr *r)
NONE(vb_qp_rts, uint64_t qp, const struct vb_rts *r)
NONE(vb_qp_to, uint64_t qp, int state)
NONE(vb_qp_state, uint64_t qp, int *state)
NONE(vb_destroy_qp, uint64_t qp)

void vb_device_path(uint64_t ctx, char name[VB_NAME], char path[VB_PATH]) { name[0] = path[0] = 0; }
int vb_async_fd(uint64_t ctx) { return -1; }
int vb_channel_fd(uint64_t channel) { return -1; }
uint32_t vb_qp_num(uint64_t qp) { return 0; }

struct vb_took vb_post_send(uint64_t qp, const struct vb_send_wr *wrs, int n, struct vb_sge *sges, size_t nsges) { return (struct vb_took){0, ENOSYS}; }
struct vb_took vb_post_recv(uint64_t qp, const struct vb_recv_wr *wrs, int n, struct vb_sge *sges, size_t nsges) { return (struct vb_took){0, ENOSYS}; }
struct vb_took vb_poll(uint64_t cq, struct vb_wc *out, int max) { return (struct vb_took){0, ENOSYS}; }

#endif
