// SPDX-License-Identifier: MIT
//
// The flat C side of package libfabric: no struct of libfabric crosses into Go.

#ifndef MORI_LIBFABRIC_SHIM_H
#define MORI_LIBFABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum { LF_IOV = 8, LF_NAME = 128, LF_ADDR = 128, LF_TEXT = 160, LF_DATA = 1024 };

// What an op of lf_post is.
enum { LF_SEND = 1, LF_RECV, LF_READ, LF_WRITE, LF_ATOMIC, LF_FETCH, LF_COMPARE };

struct lf_seg {
	uint64_t addr, len, desc;
};

struct lf_op {
	uint64_t ctx; // address of its fi_context2
	uint64_t flags;
	uint64_t peer; // fi_addr_t
	uint64_t data;
	uint64_t key;
	uint32_t kind;
	uint16_t nseg, nrseg;
	uint32_t datatype, op;
	struct lf_seg seg[LF_IOV];
	struct lf_seg rseg[LF_IOV];
	struct lf_seg compare, result;
};

struct lf_hints {
	char provider[LF_NAME], fabric[LF_NAME], domain[LF_NAME];
	char source[LF_NAME], node[LF_NAME], service[LF_NAME];
	uint64_t caps;
	uint64_t tx_op_flags;
	uint32_t ep_type;
	uint32_t mr_mode;
};

struct lf_offer {
	char provider[LF_NAME], fabric[LF_NAME], domain[LF_NAME];
	uint64_t caps, mode, tx_order, rx_order;
	uint64_t max_msg, inject, tx_size, rx_size, iov, rma_iov, cq_data, key_size;
	uint64_t order_raw, order_war, order_waw;
	uint32_t ep_type, mr_mode, addr_format, av_type;
	uint32_t src_len, dest_len;
	uint8_t src[LF_ADDR], dest[LF_ADDR];
};

struct lf_completion {
	uint64_t owner; // lf_poll's word for the queue
	uint64_t ctx;   // address of the op's fi_context2, or what the provider has instead
	uint64_t flags, len, data, src;
	int32_t err; // 0 for a success
	char text[LF_TEXT];
};

struct lf_queue {
	uint64_t cq, owner;
};

struct lf_took {
	int n, err;
};

struct lf_got {
	int n, next;
};

struct lf_event {
	uint64_t fid;
	uint64_t info; // LF_CONNREQ: an fi_info that the reader frees
	uint32_t kind; // FI_CONNREQ, FI_CONNECTED, FI_SHUTDOWN
	int32_t err;   // not 0: the attempt or the connection failed
	uint32_t len;
	uint8_t data[LF_DATA];
};

const char *lf_load(void);
uint32_t lf_version(void);
const char *lf_strerror(int err);

int lf_getinfo(const struct lf_hints *h, uint64_t *list);
void lf_freeinfo(uint64_t info);
uint64_t lf_next(uint64_t info);
uint64_t lf_handle(uint64_t info);
void lf_describe(uint64_t info, struct lf_offer *o);
int lf_set_src(uint64_t info, const void *addr, size_t len, uint32_t format);

int lf_fabric(uint64_t info, uint64_t *fabric);
int lf_domain(uint64_t fabric, uint64_t info, uint64_t *domain);
int lf_query_atomic(uint64_t domain, uint32_t datatype, uint32_t op, uint64_t flags, uint64_t *count, uint64_t *size);
int lf_mr_reg(uint64_t domain, uint64_t addr, uint64_t len, uint64_t access, uint64_t key, uint64_t *mr);
uint64_t lf_mr_key(uint64_t mr);
uint64_t lf_mr_desc(uint64_t mr);
int lf_close(uint64_t fid);

int lf_eq_open(uint64_t fabric, uint64_t *eq);
int lf_eq_read(uint64_t eq, struct lf_event *ev);
int lf_cq_open(uint64_t domain, size_t size, uint64_t *cq);
int lf_av_open(uint64_t domain, size_t count, uint64_t *av);
int lf_av_insert(uint64_t av, const void *addr, uint64_t *peer);
int lf_av_remove(uint64_t av, uint64_t peer);

int lf_endpoint(uint64_t domain, uint64_t info, uint64_t *ep);
int lf_bind(uint64_t fid, uint64_t other, uint64_t flags);
int lf_enable(uint64_t ep);
int lf_getname(uint64_t fid, void *addr, size_t *len);
int lf_cm_data_size(uint64_t fid, size_t *size);
int lf_passive(uint64_t fabric, uint64_t info, uint64_t *pep);
int lf_listen(uint64_t pep);
int lf_reject(uint64_t pep, uint64_t handle, const void *data, size_t len);
int lf_connect(uint64_t ep, const void *addr, const void *data, size_t len);
int lf_accept(uint64_t ep, const void *data, size_t len);
int lf_shutdown(uint64_t ep);

struct lf_took lf_post(uint64_t ep, const struct lf_op *ops, int n);
int lf_cancel(uint64_t ep, uint64_t ctx);
struct lf_got lf_poll(const struct lf_queue *queues, int nqueues, struct lf_completion *out, int max, int turn);
uint64_t lf_memory(size_t n, size_t size);
void lf_free(uint64_t p);
int lf_idle(int fd, int microseconds);

#endif
