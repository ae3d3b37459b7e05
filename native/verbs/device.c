// SPDX-License-Identifier: MIT

#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

_Static_assert(sizeof(struct ibv_gid_entry) == 32, "the entries of a GID table are passed with their size");

// list is the list of devices. A kernel without RDMA has none.
static int list(struct ibv_device ***devices, int *n) {
	*n = 0;
	errno = 0;
	*devices = vb_door.get_device_list(n);
	if (*devices || errno == ENOSYS || errno == ENOENT)
		return 0;
	return errno ? errno : EIO;
}

// vb_devices writes the first max devices, and counts all.
int vb_devices(struct vb_device *out, int max, int *n) {
	struct ibv_device **devices;
	int rc = list(&devices, n);
	if (rc || !devices)
		return rc;
	for (int i = 0; i < *n && i < max; i++) {
		snprintf(out[i].name, VB_NAME, "%s", vb_door.get_device_name(devices[i]));
		out[i].guid = be64toh(vb_door.get_device_guid(devices[i]));
		out[i].node = devices[i]->node_type;
		out[i].transport = devices[i]->transport_type;
	}
	vb_door.free_device_list(devices);
	return 0;
}

static int nonblocking(int fd) {
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

// vb_open answers ENODEV where no device has the name.
int vb_open(const char *name, uint64_t *ctx) {
	struct ibv_device **devices;
	int n, rc = list(&devices, &n);
	if (rc || !devices)
		return rc ? rc : ENODEV;
	rc = ENODEV;
	for (int i = 0; i < n; i++) {
		if (strcmp(vb_door.get_device_name(devices[i]), name))
			continue;
		errno = 0;
		rc = vb_made(vb_door.open_device(devices[i]), ctx);
		break;
	}
	vb_door.free_device_list(devices);
	if (!rc && (rc = nonblocking(AS(ibv_context, *ctx)->async_fd)))
		vb_door.close_device(AS(ibv_context, *ctx));
	return rc;
}

int vb_close(uint64_t ctx) {
	errno = 0;
	return vb_rc(vb_door.close_device(AS(ibv_context, ctx)));
}

int vb_query_device(uint64_t ctx, struct vb_device_attr *out) {
	struct ibv_device_attr a;
	memset(&a, 0, sizeof(a));
	errno = 0;
	int rc = vb_rc(vb_door.query_device(AS(ibv_context, ctx), &a));
	if (rc)
		return rc;
	snprintf(out->fw, sizeof(out->fw), "%.*s", (int)sizeof(out->fw) - 1, a.fw_ver);
	out->node_guid = be64toh(a.node_guid);
	out->max_mr_size = a.max_mr_size;
	out->page_sizes = a.page_size_cap;
	out->vendor_id = a.vendor_id;
	out->vendor_part_id = a.vendor_part_id;
	out->hw_ver = a.hw_ver;
	out->max_qp = a.max_qp;
	out->max_qp_wr = a.max_qp_wr;
	out->max_sge = a.max_sge;
	out->max_sge_rd = a.max_sge_rd;
	out->max_cq = a.max_cq;
	out->max_cqe = a.max_cqe;
	out->max_mr = a.max_mr;
	out->max_pd = a.max_pd;
	out->max_qp_rd_atom = a.max_qp_rd_atom;
	out->max_qp_init_rd_atom = a.max_qp_init_rd_atom;
	out->max_srq = a.max_srq;
	out->max_srq_wr = a.max_srq_wr;
	out->max_ah = a.max_ah;
	out->max_mw = a.max_mw;
	out->atomic_cap = a.atomic_cap;
	out->ports = a.phys_port_cnt;
	return 0;
}

// extended returns the table of newer calls of a context if it has a query_port, else NULL.
static struct verbs_context *extended(struct ibv_context *ctx) {
	if (ctx->abi_compat != (void *)UINTPTR_MAX)
		return NULL;
	struct verbs_context *v = (struct verbs_context *)((char *)ctx - offsetof(struct verbs_context, context));
	return v->sz >= sizeof(*v) - offsetof(struct verbs_context, query_port) && v->query_port ? v : NULL;
}

// Newer providers fill a longer struct, by their context's own function; the library's fills the old part.
static int query_port(struct ibv_context *ctx, int port, struct ibv_port_attr *a) {
	struct verbs_context *v = extended(ctx);
	memset(a, 0, sizeof(*a));
	errno = 0;
	return vb_rc(v ? v->query_port(ctx, (uint8_t)port, a, sizeof(*a)) : vb_door.query_port(ctx, (uint8_t)port, a));
}

static int32_t mtu_bytes(enum ibv_mtu mtu) { return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128 << mtu : 0; }

int vb_query_port(uint64_t ctx, int port, struct vb_port_attr *out) {
	struct ibv_port_attr a;
	int rc = query_port(AS(ibv_context, ctx), port, &a);
	if (rc)
		return rc;
	*out = (struct vb_port_attr){
		.max_msg = a.max_msg_sz,
		.gids = a.gid_tbl_len,
		.mtu = mtu_bytes(a.active_mtu),
		.max_mtu = mtu_bytes(a.max_mtu),
		.lid = a.lid,
		.sm_lid = a.sm_lid,
		.state = a.state,
		.phys_state = a.phys_state,
		.link_layer = a.link_layer,
		.width = a.active_width,
		.speed = a.active_speed,
		.grh_required = (a.flags & IBV_QPF_GRH_REQUIRED) != 0,
	};
	return 0;
}

// vb_gid_table reads what is filled of the tables of all ports, of which max is the length together.
int vb_gid_table(uint64_t ctx, struct vb_gid *out, int max, int *n) {
	*n = 0;
	if (!vb_door.query_gid_table)
		return EOPNOTSUPP;
	struct ibv_gid_entry *all = calloc((size_t)max, sizeof(*all));
	if (!all)
		return ENOMEM;
	errno = 0;
	ssize_t got = vb_door.query_gid_table(AS(ibv_context, ctx), all, (size_t)max, 0, sizeof(*all));
	for (ssize_t i = 0; i < got && i < max; i++, ++*n) {
		memcpy(out[i].gid, all[i].gid.raw, sizeof(out[i].gid));
		out[i].index = all[i].gid_index;
		out[i].port = all[i].port_num;
		out[i].type = all[i].gid_type;
		char netdev[IF_NAMESIZE] = "";
		if (all[i].ndev_ifindex)
			if_indextoname(all[i].ndev_ifindex, netdev);
		memcpy(out[i].netdev, netdev, sizeof(netdev));
	}
	free(all);
	return got < 0 ? vb_rc((int)got) : 0;
}

int vb_query_gid(uint64_t ctx, int port, int index, uint8_t gid[16]) {
	union ibv_gid g;
	errno = 0;
	int rc = vb_rc(vb_door.query_gid(AS(ibv_context, ctx), (uint8_t)port, index, &g));
	if (!rc)
		memcpy(gid, g.raw, sizeof(g.raw));
	return rc;
}

// vb_device_path is the name and the folder in sysfs of an open device.
void vb_device_path(uint64_t ctx, char name[VB_NAME], char path[VB_PATH]) {
	struct ibv_device *d = AS(ibv_context, ctx)->device;
	snprintf(name, VB_NAME, "%s", vb_door.get_device_name(d));
	snprintf(path, VB_PATH, "%s", d->ibdev_path);
}

int vb_async_fd(uint64_t ctx) { return AS(ibv_context, ctx)->async_fd; }

// vb_async_event acknowledges what it has read: the object may be destroyed from then on.
int vb_async_event(uint64_t ctx, struct vb_event *out) {
	struct ibv_async_event e;
	errno = 0;
	int rc = vb_rc(vb_door.get_async_event(AS(ibv_context, ctx), &e));
	if (rc)
		return rc;
	*out = (struct vb_event){.kind = e.event_type};
	switch (e.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->cq = (uintptr_t)e.element.cq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->qp_num = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->port = (uint32_t)e.element.port_num;
		break;
	default:
		break;
	}
	vb_door.ack_async_event(&e);
	return 0;
}
