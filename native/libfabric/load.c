// SPDX-License-Identifier: MIT

//go:build ofi

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>

#include "door.h"
#include "shim.h"

struct lf_door lf_door;

// Constructors of the PSM libraries, which libfabric may bring along, catch SIGSEGV to print a backtrace, which would take the
// runtime's faults away from it. They let that be when asked to.
const char *lf_load(void) {
	setenv("HFI_NO_BACKTRACE", "1", 0);
	setenv("IPATH_NO_BACKTRACE", "1", 0);
	void *lib = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
	const struct {
		const char *name;
		void **at;
	} wanted[] = {
		{"fi_getinfo", (void **)&lf_door.getinfo},   {"fi_freeinfo", (void **)&lf_door.freeinfo},
		{"fi_dupinfo", (void **)&lf_door.dupinfo},   {"fi_fabric", (void **)&lf_door.fabric},
		{"fi_strerror", (void **)&lf_door.strerror}, {"fi_version", (void **)&lf_door.version},
	};
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		*wanted[i].at = dlsym(lib, wanted[i].name);
		if (!*wanted[i].at)
			return dlerror();
	}
	return NULL;
}

uint32_t lf_version(void) { return lf_door.version(); }

const char *lf_strerror(int err) { return lf_door.strerror(err); }

static void set(char **to, const char *from) {
	if (from[0])
		*to = strdup(from);
}

// lf_getinfo asks for the API of 1.17, the oldest that is served. node and service are the peer's, source is ours.
int lf_getinfo(const struct lf_hints *h, uint64_t *list) {
	struct fi_info *hints = lf_door.dupinfo(NULL), *found = NULL;
	if (!hints)
		return -FI_ENOMEM;
	set(&hints->fabric_attr->prov_name, h->provider);
	set(&hints->fabric_attr->name, h->fabric);
	set(&hints->domain_attr->name, h->domain);
	hints->caps = h->caps;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = h->ep_type;
	hints->tx_attr->op_flags = h->tx_op_flags;
	hints->domain_attr->mr_mode = h->mr_mode;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
	hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
	int rc;
	if (h->node[0] || h->service[0])
		rc = lf_door.getinfo(FI_VERSION(1, 17), h->node[0] ? h->node : NULL, h->service[0] ? h->service : NULL, 0, hints, &found);
	else if (h->source[0])
		rc = lf_door.getinfo(FI_VERSION(1, 17), h->source, NULL, FI_SOURCE, hints, &found);
	else
		rc = lf_door.getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &found);
	lf_door.freeinfo(hints);
	*list = (uintptr_t)found;
	return rc;
}

void lf_freeinfo(uint64_t info) { lf_door.freeinfo((struct fi_info *)(uintptr_t)info); }

uint64_t lf_next(uint64_t info) { return (uintptr_t)((struct fi_info *)(uintptr_t)info)->next; }

uint64_t lf_handle(uint64_t info) { return (uintptr_t)((struct fi_info *)(uintptr_t)info)->handle; }

static void name(char to[LF_NAME], const char *from) {
	if (from)
		strncpy(to, from, LF_NAME - 1);
}

static uint32_t address(uint8_t to[LF_ADDR], const void *from, size_t len) {
	if (!from || len > LF_ADDR)
		return 0;
	memcpy(to, from, len);
	return (uint32_t)len;
}

void lf_describe(uint64_t info, struct lf_offer *o) {
	const struct fi_info *in = (struct fi_info *)(uintptr_t)info;
	memset(o, 0, sizeof(*o));
	name(o->provider, in->fabric_attr->prov_name);
	name(o->fabric, in->fabric_attr->name);
	name(o->domain, in->domain_attr->name);
	o->caps = in->caps;
	o->mode = in->mode | in->tx_attr->mode | in->rx_attr->mode;
	o->tx_order = in->tx_attr->msg_order;
	o->rx_order = in->rx_attr->msg_order;
	o->max_msg = in->ep_attr->max_msg_size;
	o->inject = in->tx_attr->inject_size;
	o->tx_size = in->tx_attr->size;
	o->rx_size = in->rx_attr->size;
	o->iov = in->tx_attr->iov_limit < in->rx_attr->iov_limit ? in->tx_attr->iov_limit : in->rx_attr->iov_limit;
	o->rma_iov = in->tx_attr->rma_iov_limit;
	o->cq_data = in->domain_attr->cq_data_size;
	o->key_size = in->domain_attr->mr_key_size;
	o->order_raw = in->ep_attr->max_order_raw_size;
	o->order_war = in->ep_attr->max_order_war_size;
	o->order_waw = in->ep_attr->max_order_waw_size;
	o->ep_type = in->ep_attr->type;
	o->mr_mode = in->domain_attr->mr_mode;
	o->addr_format = in->addr_format;
	o->av_type = in->domain_attr->av_type;
	o->src_len = address(o->src, in->src_addr, in->src_addrlen);
	o->dest_len = address(o->dest, in->dest_addr, in->dest_addrlen);
}

// lf_set_src gives info, which the caller owns alone, another source address.
int lf_set_src(uint64_t info, const void *addr, size_t len, uint32_t format) {
	struct fi_info *in = (struct fi_info *)(uintptr_t)info;
	void *copy = malloc(len);
	if (!copy)
		return -FI_ENOMEM;
	memcpy(copy, addr, len);
	free(in->src_addr);
	in->src_addr = copy;
	in->src_addrlen = len;
	in->addr_format = format;
	return 0;
}

int lf_fabric(uint64_t info, uint64_t *fabric) {
	struct fid_fabric *f = NULL;
	int rc = lf_door.fabric(((struct fi_info *)(uintptr_t)info)->fabric_attr, &f, NULL);
	*fabric = (uintptr_t)f;
	return rc;
}
