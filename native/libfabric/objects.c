// SPDX-License-Identifier: MIT

//go:build ofi

#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include "door.h"
#include "shim.h"

#define AS(type, p) ((struct type *)(uintptr_t)(p))

int lf_domain(uint64_t fabric, uint64_t info, uint64_t *domain) {
	struct fid_domain *d = NULL;
	int rc = fi_domain(AS(fid_fabric, fabric), AS(fi_info, info), &d, NULL);
	*domain = (uintptr_t)d;
	return rc;
}

int lf_query_atomic(uint64_t domain, uint32_t datatype, uint32_t op, uint64_t flags, uint64_t *count, uint64_t *size) {
	struct fi_atomic_attr attr = {0};
	int rc = fi_query_atomic(AS(fid_domain, domain), datatype, op, &attr, flags);
	*count = attr.count;
	*size = attr.size;
	return rc;
}

int lf_mr_reg(uint64_t domain, uint64_t addr, uint64_t len, uint64_t access, uint64_t key, uint64_t *mr) {
	struct fid_mr *m = NULL;
	int rc = fi_mr_reg(AS(fid_domain, domain), (void *)(uintptr_t)addr, len, access, 0, key, 0, &m, NULL);
	*mr = (uintptr_t)m;
	return rc;
}

uint64_t lf_mr_key(uint64_t mr) { return fi_mr_key(AS(fid_mr, mr)); }

uint64_t lf_mr_desc(uint64_t mr) { return (uintptr_t)fi_mr_desc(AS(fid_mr, mr)); }

int lf_close(uint64_t fid) { return fi_close(AS(fid, fid)); }

int lf_eq_open(uint64_t fabric, uint64_t *eq) {
	struct fi_eq_attr attr = {.size = 1024, .wait_obj = FI_WAIT_UNSPEC};
	struct fid_eq *e = NULL;
	int rc = fi_eq_open(AS(fid_fabric, fabric), &attr, &e, NULL);
	*eq = (uintptr_t)e;
	return rc;
}

// take copies private data of a connection, cut to what an event holds.
static void take(struct lf_event *ev, const void *data, size_t len) {
	ev->len = len < LF_DATA ? (uint32_t)len : LF_DATA;
	if (ev->len)
		memcpy(ev->data, data, ev->len);
}

// lf_eq_read answers 1 with an event, 0 with none.
int lf_eq_read(uint64_t eq, struct lf_event *ev) {
	union {
		struct fi_eq_cm_entry entry;
		uint8_t space[sizeof(struct fi_eq_cm_entry) + LF_DATA];
	} buf;
	uint32_t kind = 0;
	ssize_t rc = fi_eq_read(AS(fid_eq, eq), &kind, &buf, sizeof(buf), 0);
	memset(ev, 0, offsetof(struct lf_event, data));
	if (rc == -FI_EAVAIL) {
		struct fi_eq_err_entry bad = {0};
		if (fi_eq_readerr(AS(fid_eq, eq), &bad, 0) < 0)
			return 0;
		ev->fid = (uintptr_t)bad.fid;
		ev->err = bad.err ? bad.err : FI_EOTHER;
		take(ev, bad.err_data, bad.err_data ? bad.err_data_size : 0);
		return 1;
	}
	if (rc < (ssize_t)sizeof(struct fi_eq_cm_entry))
		return 0; // nothing, or no event of a connection
	ev->fid = (uintptr_t)buf.entry.fid;
	ev->kind = kind;
	if (kind == FI_CONNREQ)
		ev->info = (uintptr_t)buf.entry.info;
	if (rc > (ssize_t)sizeof(struct fi_eq_cm_entry))
		take(ev, buf.entry.data, (size_t)rc - sizeof(struct fi_eq_cm_entry));
	return 1;
}

int lf_cq_open(uint64_t domain, size_t size, uint64_t *cq) {
	struct fi_cq_attr attr = {.size = size, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_NONE};
	struct fid_cq *c = NULL;
	int rc = fi_cq_open(AS(fid_domain, domain), &attr, &c, NULL);
	*cq = (uintptr_t)c;
	return rc;
}

int lf_av_open(uint64_t domain, size_t count, uint64_t *av) {
	struct fi_av_attr attr = {.type = FI_AV_UNSPEC, .count = count};
	struct fid_av *a = NULL;
	int rc = fi_av_open(AS(fid_domain, domain), &attr, &a, NULL);
	*av = (uintptr_t)a;
	return rc;
}

int lf_av_insert(uint64_t av, const void *addr, uint64_t *peer) {
	fi_addr_t at = FI_ADDR_NOTAVAIL;
	int rc = fi_av_insert(AS(fid_av, av), (void *)addr, 1, &at, 0, NULL);
	*peer = at;
	if (rc == 1)
		return 0;
	return rc < 0 ? rc : -FI_EINVAL;
}

int lf_av_remove(uint64_t av, uint64_t peer) {
	fi_addr_t at = peer;
	return fi_av_remove(AS(fid_av, av), &at, 1, 0);
}

int lf_endpoint(uint64_t domain, uint64_t info, uint64_t *ep) {
	struct fid_ep *e = NULL;
	int rc = fi_endpoint(AS(fid_domain, domain), AS(fi_info, info), &e, NULL);
	*ep = (uintptr_t)e;
	return rc;
}

int lf_bind(uint64_t fid, uint64_t other, uint64_t flags) { return AS(fid, fid)->ops->bind(AS(fid, fid), AS(fid, other), flags); }

int lf_enable(uint64_t ep) { return fi_enable(AS(fid_ep, ep)); }

int lf_getname(uint64_t fid, void *addr, size_t *len) { return fi_getname(AS(fid, fid), addr, len); }

int lf_cm_data_size(uint64_t fid, size_t *size) {
	size_t len = sizeof(*size);
	return fi_getopt(AS(fid, fid), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, size, &len);
}

int lf_passive(uint64_t fabric, uint64_t info, uint64_t *pep) {
	struct fid_pep *p = NULL;
	int rc = fi_passive_ep(AS(fid_fabric, fabric), AS(fi_info, info), &p, NULL);
	*pep = (uintptr_t)p;
	return rc;
}

int lf_listen(uint64_t pep) { return fi_listen(AS(fid_pep, pep)); }

int lf_reject(uint64_t pep, uint64_t handle, const void *data, size_t len) {
	return fi_reject(AS(fid_pep, pep), AS(fid, handle), data, len);
}

int lf_connect(uint64_t ep, const void *addr, const void *data, size_t len) { return fi_connect(AS(fid_ep, ep), addr, data, len); }

int lf_accept(uint64_t ep, const void *data, size_t len) { return fi_accept(AS(fid_ep, ep), data, len); }

int lf_shutdown(uint64_t ep) { return fi_shutdown(AS(fid_ep, ep), 0); }

uint64_t lf_memory(size_t n, size_t size) { return (uintptr_t)calloc(n, size); }

void lf_free(uint64_t p) { free((void *)(uintptr_t)p); }

int lf_idle(int fd, int microseconds) {
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct timespec t = {.tv_sec = microseconds / 1000000, .tv_nsec = (microseconds % 1000000) * 1000L};
	return ppoll(&p, 1, &t, NULL);
}
