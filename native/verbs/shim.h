// SPDX-License-Identifier: MIT
//
// The flat C side of package verbs: no struct of libibverbs crosses into Go. Calls answer 0 or an errno.

#ifndef MORI_VERBS_SHIM_H
#define MORI_VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum { VB_NAME = 64, VB_PATH = 256, VB_WHY = 512 };

struct vb_sge {
	uint64_t addr;
	uint32_t len, lkey;
};

struct vb_send_wr {
	uint64_t id, remote_addr, compare_add, swap;
	uint32_t rkey, imm, first, count;
	uint8_t op, flags;
};

struct vb_recv_wr {
	uint64_t id;
	uint32_t first, count;
};

struct vb_wc {
	uint64_t id;
	uint32_t status, vendor_err, bytes, imm, qp_num;
	uint8_t op, has_imm;
};

// How many of a batch were taken or read, and why not the next.
struct vb_took {
	int n, err;
};

struct vb_device {
	char name[VB_NAME];
	uint64_t guid;
	int32_t node, transport;
};

struct vb_device_attr {
	char fw[VB_NAME];
	uint64_t node_guid, max_mr_size, page_sizes;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int32_t max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_qp_init_rd_atom;
	int32_t max_srq, max_srq_wr, max_ah, max_mw, atomic_cap, ports;
};

struct vb_port_attr {
	uint32_t max_msg;
	int32_t gids, mtu, max_mtu; // MTUs in bytes
	uint16_t lid, sm_lid;
	uint8_t state, phys_state, link_layer, width, speed, grh_required;
};

struct vb_gid {
	uint8_t gid[16];
	uint32_t index, port, type;
	char netdev[VB_NAME];
};

struct vb_event {
	uint64_t cq;
	uint32_t kind, port, qp_num;
};

struct vb_qp_init {
	uint64_t send_cq, recv_cq;
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_data, sig_all;
};

struct vb_rtr {
	uint32_t mtu, dest_qp, psn, port, gid_index;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t global, sl, traffic_class, hop_limit, max_dest_rd_atomic, min_rnr_timer;
};

struct vb_rts {
	uint32_t psn;
	uint8_t timeout, retries, rnr_retries, max_rd_atomic;
};

// Opens the library; not 0 if it cannot be used, for the reason in why.
int vb_load(char *why, size_t n);
// The file that was loaded, empty before.
const char *vb_library(void);
int vb_devices(struct vb_device *out, int max, int *n);

int vb_open(const char *name, uint64_t *ctx);
int vb_close(uint64_t ctx);
int vb_query_device(uint64_t ctx, struct vb_device_attr *out);
int vb_query_port(uint64_t ctx, int port, struct vb_port_attr *out);
int vb_gid_table(uint64_t ctx, struct vb_gid *out, int max, int *n);
int vb_query_gid(uint64_t ctx, int port, int index, uint8_t gid[16]);
void vb_device_path(uint64_t ctx, char name[VB_NAME], char path[VB_PATH]);
int vb_async_fd(uint64_t ctx);
int vb_async_event(uint64_t ctx, struct vb_event *out);

int vb_alloc_pd(uint64_t ctx, uint64_t *pd);
int vb_dealloc_pd(uint64_t pd);
int vb_reg_mr(uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, uint64_t *mr, uint32_t keys[2]);
int vb_reg_dmabuf(uint64_t pd, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access, uint64_t *mr, uint32_t keys[2]);
int vb_dereg_mr(uint64_t mr);

int vb_create_channel(uint64_t ctx, uint64_t *channel);
int vb_channel_fd(uint64_t channel);
int vb_next(uint64_t channel, uint64_t *token);
int vb_destroy_channel(uint64_t channel);
int vb_create_cq(uint64_t ctx, int entries, uint64_t channel, uint64_t token, uint64_t *cq);
int vb_arm(uint64_t cq);
int vb_destroy_cq(uint64_t cq);

int vb_create_qp(uint64_t pd, struct vb_qp_init *init, uint64_t *qp, uint32_t *num);
uint32_t vb_qp_num(uint64_t qp);
int vb_qp_init(uint64_t qp, int port, uint32_t access);
int vb_qp_rtr(uint64_t qp, const struct vb_rtr *r);
int vb_qp_rts(uint64_t qp, const struct vb_rts *r);
int vb_qp_to(uint64_t qp, int state);
int vb_qp_state(uint64_t qp, int *state);
int vb_destroy_qp(uint64_t qp);

struct vb_took vb_post_send(uint64_t qp, const struct vb_send_wr *wrs, int n, struct vb_sge *sges, size_t nsges);
struct vb_took vb_post_recv(uint64_t qp, const struct vb_recv_wr *wrs, int n, struct vb_sge *sges, size_t nsges);
struct vb_took vb_poll(uint64_t cq, struct vb_wc *out, int max);

#endif
