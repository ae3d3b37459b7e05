// SPDX-License-Identifier: MIT

#include <fcntl.h>
#include <string.h>

#include "door.h"

int vb_alloc_pd(uint64_t ctx, uint64_t *pd) {
	errno = 0;
	return vb_made(vb_door.alloc_pd(AS(ibv_context, ctx)), pd);
}

int vb_dealloc_pd(uint64_t pd) {
	errno = 0;
	return vb_rc(vb_door.dealloc_pd(AS(ibv_pd, pd)));
}

static int registered(struct ibv_mr *m, uint64_t *mr, uint32_t keys[2]) {
	int rc = vb_made(m, mr);
	if (!rc) {
		keys[0] = m->lkey;
		keys[1] = m->rkey;
	}
	return rc;
}

// A library without reg_mr_iova2 knows neither another address nor optional rights, which older kernels and devices would refuse.
int vb_reg_mr(uint64_t pd, uint64_t addr, uint64_t length, uint64_t iova, uint32_t access, uint64_t *mr, uint32_t keys[2]) {
	void *at = (void *)(uintptr_t)addr;
	errno = 0;
	if (vb_door.reg_mr_iova2)
		return registered(vb_door.reg_mr_iova2(AS(ibv_pd, pd), at, length, iova, access), mr, keys);
	if (iova != addr)
		return EOPNOTSUPP;
	return registered(vb_door.reg_mr(AS(ibv_pd, pd), at, length, (int)(access & ~(uint32_t)IBV_ACCESS_OPTIONAL_RANGE)), mr, keys);
}

int vb_reg_dmabuf(uint64_t pd, uint64_t offset, uint64_t length, uint64_t iova, int fd, uint32_t access, uint64_t *mr, uint32_t keys[2]) {
	if (!vb_door.reg_dmabuf_mr)
		return EOPNOTSUPP;
	errno = 0;
	return registered(vb_door.reg_dmabuf_mr(AS(ibv_pd, pd), offset, length, iova, fd, (int)access), mr, keys);
}

int vb_dereg_mr(uint64_t mr) {
	errno = 0;
	return vb_rc(vb_door.dereg_mr(AS(ibv_mr, mr)));
}

int vb_create_channel(uint64_t ctx, uint64_t *channel) {
	errno = 0;
	struct ibv_comp_channel *c = vb_door.create_comp_channel(AS(ibv_context, ctx));
	int rc = vb_made(c, channel);
	if (rc)
		return rc;
	int flags = fcntl(c->fd, F_GETFL);
	if (flags >= 0 && fcntl(c->fd, F_SETFL, flags | O_NONBLOCK) >= 0)
		return 0;
	rc = errno;
	vb_door.destroy_comp_channel(c);
	return rc;
}

int vb_channel_fd(uint64_t channel) { return AS(ibv_comp_channel, channel)->fd; }

// vb_next acknowledges what it has read: the queue may be destroyed from then on.
int vb_next(uint64_t channel, uint64_t *token) {
	struct ibv_cq *cq = NULL;
	void *context = NULL;
	errno = 0;
	int rc = vb_rc(vb_door.get_cq_event(AS(ibv_comp_channel, channel), &cq, &context));
	if (rc)
		return rc;
	*token = (uintptr_t)context;
	vb_door.ack_cq_events(cq, 1);
	return 0;
}

int vb_destroy_channel(uint64_t channel) {
	errno = 0;
	return vb_rc(vb_door.destroy_comp_channel(AS(ibv_comp_channel, channel)));
}

int vb_create_cq(uint64_t ctx, int entries, uint64_t channel, uint64_t token, uint64_t *cq) {
	errno = 0;
	return vb_made(vb_door.create_cq(AS(ibv_context, ctx), entries, (void *)(uintptr_t)token, AS(ibv_comp_channel, channel), 0), cq);
}

int vb_arm(uint64_t cq) {
	errno = 0;
	return vb_rc(ibv_req_notify_cq(AS(ibv_cq, cq), 0));
}

int vb_destroy_cq(uint64_t cq) {
	errno = 0;
	return vb_rc(vb_door.destroy_cq(AS(ibv_cq, cq)));
}

int vb_create_qp(uint64_t pd, struct vb_qp_init *in, uint64_t *qp, uint32_t *num) {
	struct ibv_qp_init_attr a = {
		.send_cq = AS(ibv_cq, in->send_cq),
		.recv_cq = AS(ibv_cq, in->recv_cq),
		.cap = {in->send_wr, in->recv_wr, in->send_sge, in->recv_sge, in->inline_data},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = in->sig_all != 0,
	};
	errno = 0;
	struct ibv_qp *q = vb_door.create_qp(AS(ibv_pd, pd), &a);
	int rc = vb_made(q, qp);
	if (rc)
		return rc;
	*num = q->qp_num;
	in->send_wr = a.cap.max_send_wr;
	in->recv_wr = a.cap.max_recv_wr;
	in->send_sge = a.cap.max_send_sge;
	in->recv_sge = a.cap.max_recv_sge;
	in->inline_data = a.cap.max_inline_data;
	return 0;
}

uint32_t vb_qp_num(uint64_t qp) { return AS(ibv_qp, qp)->qp_num; }

static int modify(uint64_t qp, struct ibv_qp_attr *a, int mask) {
	errno = 0;
	return vb_rc(vb_door.modify_qp(AS(ibv_qp, qp), a, mask | IBV_QP_STATE));
}

int vb_qp_init(uint64_t qp, int port, uint32_t access) {
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = (uint8_t)port, .qp_access_flags = access};
	return modify(qp, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int mtu_word(uint32_t bytes) {
	for (int mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; mtu++)
		if (bytes == 128u << mtu)
			return mtu;
	return 0;
}

int vb_qp_rtr(uint64_t qp, const struct vb_rtr *r) {
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_word(r->mtu),
		.dest_qp_num = r->dest_qp,
		.rq_psn = r->psn,
		.max_dest_rd_atomic = r->max_dest_rd_atomic,
		.min_rnr_timer = r->min_rnr_timer,
		.ah_attr = {.dlid = r->lid, .sl = r->sl, .is_global = r->global, .port_num = (uint8_t)r->port},
	};
	if (!a.path_mtu)
		return EINVAL;
	if (r->global) {
		memcpy(a.ah_attr.grh.dgid.raw, r->gid, sizeof(r->gid));
		a.ah_attr.grh.sgid_index = (uint8_t)r->gid_index;
		a.ah_attr.grh.hop_limit = r->hop_limit;
		a.ah_attr.grh.traffic_class = r->traffic_class;
	}
	return modify(qp, &a, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int vb_qp_rts(uint64_t qp, const struct vb_rts *r) {
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = r->psn,
		.timeout = r->timeout,
		.retry_cnt = r->retries,
		.rnr_retry = r->rnr_retries,
		.max_rd_atomic = r->max_rd_atomic,
	};
	return modify(qp, &a, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int vb_qp_to(uint64_t qp, int state) {
	struct ibv_qp_attr a = {.qp_state = state};
	return modify(qp, &a, 0);
}

int vb_qp_state(uint64_t qp, int *state) {
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	memset(&a, 0, sizeof(a));
	errno = 0;
	int rc = vb_rc(vb_door.query_qp(AS(ibv_qp, qp), &a, IBV_QP_STATE, &init));
	*state = a.qp_state;
	return rc;
}

int vb_destroy_qp(uint64_t qp) {
	errno = 0;
	return vb_rc(vb_door.destroy_qp(AS(ibv_qp, qp)));
}
