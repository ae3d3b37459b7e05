// SPDX-License-Identifier: MIT

//go:build ofi

#include <string.h>
#include <sys/uio.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "shim.h"

#define AS(type, p) ((struct type *)(uintptr_t)(p))
#define PTR(p) ((void *)(uintptr_t)(p))

static ssize_t message(struct fid_ep *ep, const struct lf_op *op) {
	struct iovec iov[LF_IOV];
	void *desc[LF_IOV];
	for (int i = 0; i < op->nseg; i++) {
		iov[i] = (struct iovec){PTR(op->seg[i].addr), op->seg[i].len};
		desc[i] = PTR(op->seg[i].desc);
	}
	struct fi_msg msg = {.msg_iov = iov, .desc = desc, .iov_count = op->nseg, .addr = op->peer, .context = PTR(op->ctx), .data = op->data};
	return op->kind == LF_SEND ? fi_sendmsg(ep, &msg, op->flags) : fi_recvmsg(ep, &msg, op->flags);
}

static ssize_t rma(struct fid_ep *ep, const struct lf_op *op) {
	struct iovec iov[LF_IOV];
	void *desc[LF_IOV];
	struct fi_rma_iov riov[LF_IOV];
	for (int i = 0; i < op->nseg; i++) {
		iov[i] = (struct iovec){PTR(op->seg[i].addr), op->seg[i].len};
		desc[i] = PTR(op->seg[i].desc);
	}
	for (int i = 0; i < op->nrseg; i++)
		riov[i] = (struct fi_rma_iov){op->rseg[i].addr, op->rseg[i].len, op->key};
	struct fi_msg_rma msg = {.msg_iov = iov, .desc = desc, .iov_count = op->nseg, .addr = op->peer, .rma_iov = riov,
				 .rma_iov_count = op->nrseg, .context = PTR(op->ctx), .data = op->data};
	return op->kind == LF_READ ? fi_readmsg(ep, &msg, op->flags) : fi_writemsg(ep, &msg, op->flags);
}

// An atomic's lengths are counts of elements.
static ssize_t atomic(struct fid_ep *ep, const struct lf_op *op) {
	struct fi_ioc ioc = {PTR(op->seg[0].addr), op->seg[0].len}, compare = {PTR(op->compare.addr), op->compare.len},
		      result = {PTR(op->result.addr), op->result.len};
	void *desc = PTR(op->seg[0].desc), *compare_desc = PTR(op->compare.desc), *result_desc = PTR(op->result.desc);
	struct fi_rma_ioc rioc = {op->rseg[0].addr, op->rseg[0].len, op->key};
	struct fi_msg_atomic msg = {.msg_iov = &ioc, .desc = &desc, .iov_count = 1, .addr = op->peer, .rma_iov = &rioc, .rma_iov_count = 1,
				    .datatype = op->datatype, .op = op->op, .context = PTR(op->ctx), .data = op->data};
	switch (op->kind) {
	case LF_ATOMIC:
		return fi_atomicmsg(ep, &msg, op->flags);
	case LF_FETCH:
		return fi_fetch_atomicmsg(ep, &msg, &result, &result_desc, 1, op->flags);
	default:
		return fi_compare_atomicmsg(ep, &msg, &compare, &compare_desc, 1, &result, &result_desc, 1, op->flags);
	}
}

// lf_post posts ops in order, and answers how many were taken and why the next was not.
struct lf_took lf_post(uint64_t ep, const struct lf_op *ops, int n) {
	struct fid_ep *e = AS(fid_ep, ep);
	for (int i = 0; i < n; i++) {
		ssize_t rc;
		switch (ops[i].kind) {
		case LF_SEND:
		case LF_RECV:
			rc = message(e, &ops[i]);
			break;
		case LF_READ:
		case LF_WRITE:
			rc = rma(e, &ops[i]);
			break;
		default:
			rc = atomic(e, &ops[i]);
		}
		if (rc)
			return (struct lf_took){i, (int)-rc};
	}
	return (struct lf_took){n, 0};
}

int lf_cancel(uint64_t ep, uint64_t ctx) { return (int)fi_cancel(AS(fid, ep), PTR(ctx)); }

static void failed(struct fid_cq *cq, struct lf_completion *c) {
	struct fi_cq_err_entry bad;
	memset(&bad, 0, sizeof(bad));
	c->err = FI_EOTHER;
	if (fi_cq_readerr(cq, &bad, 0) < 0)
		return;
	c->ctx = (uintptr_t)bad.op_context;
	c->flags = bad.flags;
	c->len = bad.len;
	c->data = bad.data;
	if (bad.err)
		c->err = bad.err < 0 ? -bad.err : bad.err; // shm 1.17 has the sign wrong
	const char *text = fi_cq_strerror(cq, bad.prov_errno, bad.err_data, c->text, sizeof(c->text));
	if (text && text != c->text)
		strncpy(c->text, text, sizeof(c->text) - 1);
	c->text[sizeof(c->text) - 1] = 0;
}

enum { BATCH = 16 };

// drain reads up to max completions of a queue.
static int drain(const struct lf_queue *q, struct lf_completion *out, int max) {
	struct fid_cq *cq = AS(fid_cq, q->cq);
	struct fi_cq_data_entry entries[BATCH];
	fi_addr_t src[BATCH];
	int n = 0;
	while (n < max) {
		int want = max - n < BATCH ? max - n : BATCH;
		for (int i = 0; i < want; i++)
			src[i] = FI_ADDR_NOTAVAIL;
		ssize_t got = fi_cq_readfrom(cq, entries, want, src);
		if (got == -FI_EAVAIL) {
			out[n] = (struct lf_completion){.owner = q->owner, .src = FI_ADDR_NOTAVAIL};
			failed(cq, &out[n++]);
			continue;
		}
		if (got <= 0)
			break;
		for (int i = 0; i < got; i++, n++) {
			struct lf_completion *c = &out[n];
			c->owner = q->owner;
			c->ctx = (uintptr_t)entries[i].op_context;
			c->flags = entries[i].flags;
			c->len = entries[i].len;
			c->data = entries[i].data;
			c->src = src[i];
			c->err = 0;
			c->text[0] = 0;
		}
	}
	return n;
}

// lf_poll makes each queue progress, beginning with number turn, and answers how many completions it read in all, and where to go on
// if out is full.
struct lf_got lf_poll(const struct lf_queue *queues, int nqueues, struct lf_completion *out, int max, int turn) {
	struct lf_got got = {0, turn};
	for (int i = 0; i < nqueues && got.n < max; i++) {
		got.next = (turn + i) % nqueues;
		got.n += drain(&queues[got.next], out + got.n, max - got.n);
	}
	return got;
}
