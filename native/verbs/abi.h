// SPDX-License-Identifier: MIT
//
// The part of libibverbs' binary interface that mori and the emulated libibverbs use, so that
// neither needs the library's header. C and C++.
//
// Names, values and layouts are those of libibverbs.so.1; abi_test.go compares them with
// <infiniband/verbs.h> where that is installed. Members called unused... stand for members that
// nobody here touches. A struct that the library allocates has its full size, too, because the
// emulated library allocates it for programs that were compiled with the original header.

#ifndef MORI_VERBS_ABI_H
#define MORI_VERBS_ABI_H

#include <linux/types.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

// Types that are only passed on.
struct ibv_mw;
struct ibv_mw_bind;
struct ibv_srq;
struct ibv_srq_init_attr;

// Devices and contexts.

enum ibv_node_type {
	IBV_NODE_UNKNOWN = -1,
	IBV_NODE_CA = 1,
	IBV_NODE_SWITCH = 2,
	IBV_NODE_ROUTER = 3,
	IBV_NODE_RNIC = 4,
	IBV_NODE_USNIC = 5,
	IBV_NODE_USNIC_UDP = 6,
	IBV_NODE_UNSPECIFIED = 7,
};

enum ibv_transport_type {
	IBV_TRANSPORT_UNKNOWN = -1,
	IBV_TRANSPORT_IB = 0,
	IBV_TRANSPORT_IWARP = 1,
	IBV_TRANSPORT_USNIC = 2,
	IBV_TRANSPORT_USNIC_UDP = 3,
	IBV_TRANSPORT_UNSPECIFIED = 4,
};

enum ibv_fork_status { IBV_FORK_DISABLED = 0, IBV_FORK_ENABLED = 1, IBV_FORK_UNNEEDED = 2 };

enum ibv_atomic_cap { IBV_ATOMIC_NONE = 0, IBV_ATOMIC_HCA = 1, IBV_ATOMIC_GLOB = 2 };

// ibv_device_attr.device_cap_flags
enum { IBV_DEVICE_PORT_ACTIVE_EVENT = 0x400, IBV_DEVICE_RC_RNR_NAK_GEN = 0x1000 };

struct ibv_device {
	void *unused[2];
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[64], dev_name[64];
	char dev_path[256], ibdev_path[256];
};

struct ibv_device_attr {
	char fw_ver[64];
	__be64 node_guid, sys_image_guid;
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd;
	int max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
	enum ibv_atomic_cap atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr;
	int max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_cq;
struct ibv_qp;
struct ibv_wc;
struct ibv_send_wr;
struct ibv_recv_wr;
struct ibv_port_attr;

// The data path: a provider fills this table, and the functions at the end of this file call it.
struct ibv_context_ops {
	void *unused1[8];
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	void *unused2[2];
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int);
	void *unused3[7];
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	void *unused4[4];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	void *unused5[5];
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; // all bits set: the context is the last member of a verbs_context
};

// The table of newer calls, which grows at its front. sz is its size in the library that made it.
struct verbs_context {
	int (*query_port)(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t attr_size);
	void *unused[38];
	size_t sz;
	struct ibv_context context;
};

// Ports and addresses.

enum ibv_mtu { IBV_MTU_256 = 1, IBV_MTU_512 = 2, IBV_MTU_1024 = 3, IBV_MTU_2048 = 4, IBV_MTU_4096 = 5 };

enum ibv_port_state {
	IBV_PORT_NOP = 0,
	IBV_PORT_DOWN = 1,
	IBV_PORT_INIT = 2,
	IBV_PORT_ARMED = 3,
	IBV_PORT_ACTIVE = 4,
	IBV_PORT_ACTIVE_DEFER = 5,
};

// ibv_port_attr.link_layer, .port_cap_flags and .flags
enum { IBV_LINK_LAYER_UNSPECIFIED = 0, IBV_LINK_LAYER_INFINIBAND = 1, IBV_LINK_LAYER_ETHERNET = 2 };
enum { IBV_PORT_CM_SUP = 0x10000, IBV_PORT_IP_BASED_GIDS = 0x4000000 };
enum { IBV_QPF_GRH_REQUIRED = 1 };

// Library functions fill it up to flags; only verbs_context.query_port fills what follows.
struct ibv_port_attr {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
};

union ibv_gid {
	uint8_t raw[16];
	struct {
		__be64 subnet_prefix, interface_id;
	} global;
};

enum ibv_gid_type { IBV_GID_TYPE_IB = 0, IBV_GID_TYPE_ROCE_V1 = 1, IBV_GID_TYPE_ROCE_V2 = 2 };

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

// Asynchronous events.

enum ibv_event_type {
	IBV_EVENT_CQ_ERR = 0,
	IBV_EVENT_QP_FATAL = 1,
	IBV_EVENT_QP_REQ_ERR = 2,
	IBV_EVENT_QP_ACCESS_ERR = 3,
	IBV_EVENT_COMM_EST = 4,
	IBV_EVENT_SQ_DRAINED = 5,
	IBV_EVENT_PATH_MIG = 6,
	IBV_EVENT_PATH_MIG_ERR = 7,
	IBV_EVENT_DEVICE_FATAL = 8,
	IBV_EVENT_PORT_ACTIVE = 9,
	IBV_EVENT_PORT_ERR = 10,
	IBV_EVENT_LID_CHANGE = 11,
	IBV_EVENT_PKEY_CHANGE = 12,
	IBV_EVENT_SM_CHANGE = 13,
	IBV_EVENT_SRQ_ERR = 14,
	IBV_EVENT_SRQ_LIMIT_REACHED = 15,
	IBV_EVENT_QP_LAST_WQE_REACHED = 16,
	IBV_EVENT_CLIENT_REREGISTER = 17,
	IBV_EVENT_GID_CHANGE = 18,
	IBV_EVENT_WQ_FATAL = 19,
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};

// Protection domains and memory regions.

enum ibv_access_flags {
	IBV_ACCESS_LOCAL_WRITE = 0x1,
	IBV_ACCESS_REMOTE_WRITE = 0x2,
	IBV_ACCESS_REMOTE_READ = 0x4,
	IBV_ACCESS_REMOTE_ATOMIC = 0x8,
	IBV_ACCESS_RELAXED_ORDERING = 0x100000,
	IBV_ACCESS_OPTIONAL_RANGE = 0x3ff00000, // devices that do not know one of these bits ignore it
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

// Completion channels and queues.

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd, refcnt;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

enum ibv_wc_status {
	IBV_WC_SUCCESS = 0,
	IBV_WC_LOC_LEN_ERR = 1,
	IBV_WC_LOC_QP_OP_ERR = 2,
	IBV_WC_LOC_EEC_OP_ERR = 3,
	IBV_WC_LOC_PROT_ERR = 4,
	IBV_WC_WR_FLUSH_ERR = 5,
	IBV_WC_MW_BIND_ERR = 6,
	IBV_WC_BAD_RESP_ERR = 7,
	IBV_WC_LOC_ACCESS_ERR = 8,
	IBV_WC_REM_INV_REQ_ERR = 9,
	IBV_WC_REM_ACCESS_ERR = 10,
	IBV_WC_REM_OP_ERR = 11,
	IBV_WC_RETRY_EXC_ERR = 12,
	IBV_WC_RNR_RETRY_EXC_ERR = 13,
	IBV_WC_LOC_RDD_VIOL_ERR = 14,
	IBV_WC_REM_INV_RD_REQ_ERR = 15,
	IBV_WC_REM_ABORT_ERR = 16,
	IBV_WC_INV_EECN_ERR = 17,
	IBV_WC_INV_EEC_STATE_ERR = 18,
	IBV_WC_FATAL_ERR = 19,
	IBV_WC_RESP_TIMEOUT_ERR = 20,
	IBV_WC_GENERAL_ERR = 21,
	IBV_WC_TM_ERR = 22,
	IBV_WC_TM_RNDV_INCOMPLETE = 23,
};

enum ibv_wc_opcode {
	IBV_WC_SEND = 0,
	IBV_WC_RDMA_WRITE = 1,
	IBV_WC_RDMA_READ = 2,
	IBV_WC_COMP_SWAP = 3,
	IBV_WC_FETCH_ADD = 4,
	IBV_WC_RECV = 128,
	IBV_WC_RECV_RDMA_WITH_IMM = 129,
};

// ibv_wc.wc_flags
enum { IBV_WC_WITH_IMM = 2 };

struct ibv_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err, byte_len;
	__be32 imm_data;
	uint32_t qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

// Queue pairs.

enum ibv_qp_type { IBV_QPT_RC = 2, IBV_QPT_UC = 3, IBV_QPT_UD = 4, IBV_QPT_DRIVER = 255 };

enum ibv_qp_state {
	IBV_QPS_RESET = 0,
	IBV_QPS_INIT = 1,
	IBV_QPS_RTR = 2,
	IBV_QPS_RTS = 3,
	IBV_QPS_SQD = 4,
	IBV_QPS_SQE = 5,
	IBV_QPS_ERR = 6,
	IBV_QPS_UNKNOWN = 7,
};

enum ibv_mig_state { IBV_MIG_MIGRATED = 0, IBV_MIG_REARM = 1, IBV_MIG_ARMED = 2 };

// Which members of an ibv_qp_attr a call sets.
enum ibv_qp_attr_mask {
	IBV_QP_STATE = 0x1,
	IBV_QP_CUR_STATE = 0x2,
	IBV_QP_ACCESS_FLAGS = 0x8,
	IBV_QP_PKEY_INDEX = 0x10,
	IBV_QP_PORT = 0x20,
	IBV_QP_AV = 0x80,
	IBV_QP_PATH_MTU = 0x100,
	IBV_QP_TIMEOUT = 0x200,
	IBV_QP_RETRY_CNT = 0x400,
	IBV_QP_RNR_RETRY = 0x800,
	IBV_QP_RQ_PSN = 0x1000,
	IBV_QP_MAX_QP_RD_ATOMIC = 0x2000,
	IBV_QP_MIN_RNR_TIMER = 0x8000,
	IBV_QP_SQ_PSN = 0x10000,
	IBV_QP_MAX_DEST_RD_ATOMIC = 0x20000,
	IBV_QP_DEST_QPN = 0x100000,
};

struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_qp_attr {
	enum ibv_qp_state qp_state, cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
	uint8_t port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

// Work requests.

enum ibv_wr_opcode {
	IBV_WR_RDMA_WRITE = 0,
	IBV_WR_RDMA_WRITE_WITH_IMM = 1,
	IBV_WR_SEND = 2,
	IBV_WR_SEND_WITH_IMM = 3,
	IBV_WR_RDMA_READ = 4,
	IBV_WR_ATOMIC_CMP_AND_SWP = 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
	IBV_WR_LOCAL_INV = 7,
	IBV_WR_BIND_MW = 8,
	IBV_WR_SEND_WITH_INV = 9,
	IBV_WR_TSO = 10,
	IBV_WR_DRIVER1 = 11,
};

enum ibv_send_flags { IBV_SEND_FENCE = 1, IBV_SEND_SIGNALED = 2, IBV_SEND_SOLICITED = 4, IBV_SEND_INLINE = 8 };

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned send_flags;
	__be32 imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
	} wr;
	uint64_t unused[7]; // of other kinds of queue pairs and requests
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

// Functions of the library. door.h has the versions of their symbols.

struct ibv_device **ibv_get_device_list(int *count);
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *);
__be64 ibv_get_device_guid(struct ibv_device *);
struct ibv_context *ibv_open_device(struct ibv_device *);
int ibv_close_device(struct ibv_context *);
int ibv_query_device(struct ibv_context *, struct ibv_device_attr *);
int ibv_query_port(struct ibv_context *, uint8_t port, struct ibv_port_attr *);
int ibv_query_gid(struct ibv_context *, uint8_t port, int index, union ibv_gid *);
ssize_t _ibv_query_gid_table(struct ibv_context *, struct ibv_gid_entry *, size_t max, uint32_t flags, size_t entry_size);
int ibv_get_async_event(struct ibv_context *, struct ibv_async_event *);
void ibv_ack_async_event(struct ibv_async_event *);

struct ibv_pd *ibv_alloc_pd(struct ibv_context *);
int ibv_dealloc_pd(struct ibv_pd *);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *, void *addr, size_t length, uint64_t iova, unsigned access);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
int ibv_dereg_mr(struct ibv_mr *);

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *);
int ibv_destroy_comp_channel(struct ibv_comp_channel *);
struct ibv_cq *ibv_create_cq(struct ibv_context *, int entries, void *cq_context, struct ibv_comp_channel *, int vector);
int ibv_destroy_cq(struct ibv_cq *);
int ibv_get_cq_event(struct ibv_comp_channel *, struct ibv_cq **, void **cq_context);
void ibv_ack_cq_events(struct ibv_cq *, unsigned count);

struct ibv_qp *ibv_create_qp(struct ibv_pd *, struct ibv_qp_init_attr *);
int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask);
int ibv_query_qp(struct ibv_qp *, struct ibv_qp_attr *, int mask, struct ibv_qp_init_attr *);
int ibv_destroy_qp(struct ibv_qp *);

const char *ibv_wc_status_str(enum ibv_wc_status);

// The data path goes through the context's table, without a call into the library.

static inline int ibv_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *out) { return cq->context->ops.poll_cq(cq, max, out); }

static inline int ibv_req_notify_cq(struct ibv_cq *cq, int solicited_only) { return cq->context->ops.req_notify_cq(cq, solicited_only); }

static inline int ibv_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	return qp->context->ops.post_send(qp, wr, bad);
}

static inline int ibv_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	return qp->context->ops.post_recv(qp, wr, bad);
}

#ifdef __cplusplus
}
#endif

#endif
