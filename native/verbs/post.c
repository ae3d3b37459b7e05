// SPDX-License-Identifier: MIT

#include <arpa/inet.h>
#include <stddef.h>

#include "door.h"

// The numbers of words.go are the library's own, and SGEs go through as they are.
_Static_assert(sizeof(struct vb_sge) == sizeof(struct ibv_sge) && offsetof(struct vb_sge, len) == offsetof(struct ibv_sge, length) &&
		   offsetof(struct vb_sge, lkey) == offsetof(struct ibv_sge, lkey),
	       "an SGE is the library's");
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_RDMA_WRITE_WITH_IMM == 1 && IBV_WR_SEND == 2 && IBV_WR_SEND_WITH_IMM == 3 && IBV_WR_RDMA_READ == 4 &&
		   IBV_WR_ATOMIC_CMP_AND_SWP == 5 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6,
	       "ops");
_Static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2 && IBV_SEND_SOLICITED == 4 && IBV_SEND_INLINE == 8, "flags");
_Static_assert(IBV_WC_RECV == 128 && IBV_WC_RECV_RDMA_WITH_IMM == 129 && IBV_WC_FETCH_ADD == 4, "what completions are of");
_Static_assert(IBV_WC_RNR_RETRY_EXC_ERR == 13 && IBV_WC_TM_RNDV_INCOMPLETE == 23, "statuses");
_Static_assert(IBV_EVENT_WQ_FATAL == 19 && IBV_EVENT_PORT_ERR == 10, "events");
_Static_assert(IBV_QPS_ERR == 6 && IBV_PORT_ACTIVE == 4 && IBV_GID_TYPE_ROCE_V2 == 2 && IBV_ATOMIC_GLOB == 2, "states, types");
_Static_assert(IBV_ACCESS_REMOTE_ATOMIC == 8 && IBV_ACCESS_RELAXED_ORDERING == 1 << 20, "rights");

// A batch goes to the device in chains of this many, each with one doorbell. It is on the stack: 8 KiB of work requests.
enum { CHAIN = 64 };

static int fill(struct ibv_send_wr *to, const struct vb_send_wr *w, struct vb_sge *sges, size_t nsges) {
	if (w->op > IBV_WR_ATOMIC_FETCH_AND_ADD || w->first > nsges || w->count > nsges - w->first)
		return EINVAL;
	to->wr_id = w->id;
	to->sg_list = (struct ibv_sge *)(sges + w->first);
	to->num_sge = (int)w->count;
	to->opcode = w->op;
	to->send_flags = w->flags;
	to->imm_data = htonl(w->imm);
	if (w->op >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		to->wr.atomic.remote_addr = w->remote_addr;
		to->wr.atomic.compare_add = w->compare_add;
		to->wr.atomic.swap = w->swap;
		to->wr.atomic.rkey = w->rkey;
	} else {
		to->wr.rdma.remote_addr = w->remote_addr;
		to->wr.rdma.rkey = w->rkey;
	}
	return 0;
}

// How many of a chain of k went before the bad one, of which a provider may say nothing, or nonsense.
static int before(ptrdiff_t bad, int k) { return bad >= 0 && bad < k ? (int)bad : 0; }

struct vb_took vb_post_send(uint64_t qp, const struct vb_send_wr *wrs, int n, struct vb_sge *sges, size_t nsges) {
	struct ibv_send_wr chain[CHAIN];
	struct vb_took took = {0, 0};
	while (took.n < n && !took.err) {
		int k = 0;
		while (k < CHAIN && took.n + k < n && !(took.err = fill(&chain[k], &wrs[took.n + k], sges, nsges))) {
			chain[k].next = &chain[k + 1];
			k++;
		}
		if (!k)
			break;
		chain[k - 1].next = NULL;
		struct ibv_send_wr *bad = chain;
		errno = 0;
		int rc = vb_rc(ibv_post_send(AS(ibv_qp, qp), chain, &bad));
		if (rc)
			return (struct vb_took){took.n + before(bad - chain, k), rc};
		took.n += k;
	}
	return took;
}

struct vb_took vb_post_recv(uint64_t qp, const struct vb_recv_wr *wrs, int n, struct vb_sge *sges, size_t nsges) {
	struct ibv_recv_wr chain[CHAIN];
	struct vb_took took = {0, 0};
	while (took.n < n && !took.err) {
		int k = 0;
		for (; k < CHAIN && took.n + k < n; k++) {
			const struct vb_recv_wr *w = &wrs[took.n + k];
			if (w->first > nsges || w->count > nsges - w->first) {
				took.err = EINVAL;
				break;
			}
			chain[k] = (struct ibv_recv_wr){w->id, &chain[k + 1], (struct ibv_sge *)(sges + w->first), (int)w->count};
		}
		if (!k)
			break;
		chain[k - 1].next = NULL;
		struct ibv_recv_wr *bad = chain;
		errno = 0;
		int rc = vb_rc(ibv_post_recv(AS(ibv_qp, qp), chain, &bad));
		if (rc)
			return (struct vb_took){took.n + before(bad - chain, k), rc};
		took.n += k;
	}
	return took;
}

enum { BATCH = 32 };

struct vb_took vb_poll(uint64_t cq, struct vb_wc *out, int max) {
	struct ibv_wc wc[BATCH];
	struct vb_took took = {0, 0};
	while (took.n < max) {
		int want = max - took.n < BATCH ? max - took.n : BATCH;
		errno = 0;
		int got = ibv_poll_cq(AS(ibv_cq, cq), want, wc);
		if (got < 0) {
			// What was read is reported first, the failure at the next call. Providers answer numbers of their own here.
			took.err = took.n ? 0 : errno ? errno : EIO;
			break;
		}
		for (int i = 0; i < got; i++) {
			int imm = (wc[i].wc_flags & IBV_WC_WITH_IMM) != 0;
			out[took.n++] = (struct vb_wc){
				.id = wc[i].wr_id,
				.status = wc[i].status,
				.vendor_err = wc[i].vendor_err,
				.bytes = wc[i].byte_len,
				.imm = imm ? ntohl(wc[i].imm_data) : 0,
				.qp_num = wc[i].qp_num,
				.op = (uint8_t)wc[i].opcode,
				.has_imm = (uint8_t)imm,
			};
		}
		if (got < want)
			break;
	}
	return took;
}
