// SPDX-License-Identifier: MIT
//
// The raw limit of BenchmarkPostAndPoll: the same work without Go. It connects two queue pairs of the first device with each other,
// and prints the nanoseconds that a write of 8 bytes takes, posted and polled in batches of ARGV[1] for ARGV[2] milliseconds.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../abi.h"

enum { MAX = 64 };

static void want(int ok, const char *what) {
	if (ok)
		return;
	perror(what);
	exit(1);
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void connect_to(struct ibv_qp *qp, uint32_t dest, const struct ibv_port_attr *port, int index, const union ibv_gid *gid) {
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
	want(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	struct ibv_qp_attr r = {.qp_state = IBV_QPS_RTR, .path_mtu = port->active_mtu, .dest_qp_num = dest, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				.ah_attr = {.dlid = port->lid, .port_num = 1, .is_global = port->link_layer == IBV_LINK_LAYER_ETHERNET,
					    .grh = {.dgid = *gid, .sgid_index = (uint8_t)index, .hop_limit = 64}}};
	want(!ibv_modify_qp(qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	struct ibv_qp_attr s = {.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	want(!ibv_modify_qp(qp, &s, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static long batches(struct ibv_qp *qp, struct ibv_cq *cq, const struct ibv_mr *mr, int batch, double end) {
	struct ibv_sge sge = {(uintptr_t)mr->addr, 8, mr->lkey};
	struct ibv_send_wr wr[MAX];
	struct ibv_wc wc[MAX];
	long done = 0;
	while (now() < end) {
		memset(wr, 0, sizeof(wr[0]) * (size_t)batch);
		for (int i = 0; i < batch; i++) {
			wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sge;
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED;
			wr[i].wr.rdma.remote_addr = (uintptr_t)mr->addr + 64;
			wr[i].wr.rdma.rkey = mr->rkey;
		}
		struct ibv_send_wr *bad;
		want(!ibv_post_send(qp, wr, &bad), "post");
		for (int left = batch; left > 0;) {
			int n = ibv_poll_cq(cq, left, wc);
			want(n >= 0, "poll");
			for (int i = 0; i < n; i++)
				want(wc[i].status == IBV_WC_SUCCESS, "a write");
			left -= n;
		}
		done += batch;
	}
	return done;
}

int main(int argc, char **argv) {
	int batch = argc > 2 ? atoi(argv[1]) : 0, n = 0;
	want(batch > 0 && batch <= MAX, "usage: raw BATCH MILLISECONDS GID");
	int index = argc > 3 ? atoi(argv[3]) : 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	want(list && n > 0, "devices");
	struct ibv_context *ctx = ibv_open_device(list[0]);
	want(ctx != NULL, "open");
	struct ibv_port_attr port;
	union ibv_gid gid;
	want(!ibv_query_port(ctx, 1, &port) && !ibv_query_gid(ctx, 1, index, &gid), "port");
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 4 * MAX, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, aligned_alloc(4096, 4096), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	want(pd && cq && mr, "objects");
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {MAX, 1, 1, 1, 0}};
	struct ibv_qp *a = ibv_create_qp(pd, &init), *b = ibv_create_qp(pd, &init);
	want(a && b, "queue pairs");
	connect_to(a, b->qp_num, &port, index, &gid);
	connect_to(b, a->qp_num, &port, index, &gid);
	double limit = atof(argv[2]) * 1e6, start = now();
	batches(a, cq, mr, batch, start + limit / 10); // the first ones are slower
	start = now();
	long done = batches(a, cq, mr, batch, start + limit);
	printf("%.1f\n", (now() - start) / (double)done);
	return 0;
}
