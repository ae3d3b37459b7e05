// SPDX-License-Identifier: MIT
//
// Queue formats as libmlx5's own header has them. Package headertest compiles and loads it.

#include <infiniband/mlx5dv.h>
#include <string.h>

#include "../peer.h"

static void control(void *seg, uint16_t pi, uint8_t opcode, uint8_t opmod, uint32_t qpn, uint8_t flags, uint8_t ds, uint32_t imm) {
	mlx5dv_set_ctrl_seg(seg, pi, opcode, opmod, qpn, flags, ds, 0, htobe32(imm)); // the header has imm big-endian already
}

static void data(void *seg, uint32_t bytes, uint32_t key, uint64_t addr) { mlx5dv_set_data_seg(seg, bytes, key, addr); }

static void remote(void *seg, uint64_t addr, uint32_t key) {
	struct mlx5_wqe_raddr_seg r = {.raddr = htobe64(addr), .rkey = htobe32(key)};
	memcpy(seg, &r, sizeof(r));
}

static void atomic(void *seg, uint64_t swap_add, uint64_t compare) {
	struct mlx5_wqe_atomic_seg a = {.swap_add = htobe64(swap_add), .compare = htobe64(compare)};
	memcpy(seg, &a, sizeof(a));
}

static void inline_head(void *seg, uint32_t bytes) {
	struct mlx5_wqe_inl_data_seg i = {.byte_count = htobe32(bytes | MLX5_INLINE_SEG)};
	memcpy(seg, &i, sizeof(i));
}

static void parse_cqe(const void *from, struct peer_cqe *out) {
	struct mlx5_cqe64 cqe;
	struct mlx5_err_cqe err;
	memcpy(&cqe, from, sizeof(cqe));
	memcpy(&err, from, sizeof(err));
	*out = (struct peer_cqe){
		.opcode = mlx5dv_get_cqe_opcode(&cqe),
		.owner = mlx5dv_get_cqe_owner(&cqe),
		.format = mlx5dv_get_cqe_format(&cqe),
		.syndrome = err.syndrome,
		.vendor = err.vendor_err_synd,
		.counter = be16toh(cqe.wqe_counter),
		.bytes = be32toh(cqe.byte_cnt),
		.imm = be32toh(cqe.imm_inval_pkey),
		.last = be32toh(cqe.sop_drop_qpn),
	};
}

static void set(void *mailbox, uint32_t value, size_t bit, size_t bits) { _devx_set(mailbox, value, bit, bits); }

static uint32_t get(const void *mailbox, size_t bit, size_t bits) { return _devx_get(mailbox, bit, bits); }

static int64_t constant(int i, const char **name) {
	static const struct {
		const char *name;
		int64_t value;
	} list[] = {
#define C(x) {#x, (int64_t)(x)}
		C(MLX5_OPCODE_NOP), C(MLX5_OPCODE_RDMA_WRITE), C(MLX5_OPCODE_RDMA_WRITE_IMM), C(MLX5_OPCODE_SEND), C(MLX5_OPCODE_SEND_IMM),
		C(MLX5_OPCODE_RDMA_READ), C(MLX5_OPCODE_ATOMIC_CS), C(MLX5_OPCODE_ATOMIC_FA), C(MLX5_OPCODE_ATOMIC_MASKED_CS),
		C(MLX5_OPCODE_ATOMIC_MASKED_FA), C(MLX5_SEND_WQE_BB), C(MLX5_WQE_CTRL_CQ_UPDATE), C(MLX5_WQE_CTRL_SOLICITED), C(MLX5_WQE_CTRL_FENCE),
		C(MLX5_INVALID_LKEY), C(MLX5_CQE_REQ), C(MLX5_CQE_RESP_WR_IMM), C(MLX5_CQE_RESP_SEND), C(MLX5_CQE_RESP_SEND_IMM), C(MLX5_CQE_REQ_ERR),
		C(MLX5_CQE_RESP_ERR), C(MLX5_CQE_INVALID), C(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR), C(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR),
		C(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR), C(MLX5_CQE_SYNDROME_WR_FLUSH_ERR), C(MLX5_CQE_SYNDROME_MW_BIND_ERR),
		C(MLX5_CQE_SYNDROME_BAD_RESP_ERR), C(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR), C(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR),
		C(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR), C(MLX5_CQE_SYNDROME_REMOTE_OP_ERR), C(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR),
		C(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR), C(MLX5_RCV_DBR), C(MLX5_SND_DBR), {"sizeof mlx5_cqe64", sizeof(struct mlx5_cqe64)},
		{"sizeof mlx5_wqe_ctrl_seg", sizeof(struct mlx5_wqe_ctrl_seg)}, {"sizeof mlx5_wqe_raddr_seg", sizeof(struct mlx5_wqe_raddr_seg)},
		{"sizeof mlx5_wqe_data_seg", sizeof(struct mlx5_wqe_data_seg)}, {"sizeof mlx5_wqe_atomic_seg", sizeof(struct mlx5_wqe_atomic_seg)},
#undef C
	};
	if (i < 0 || (size_t)i >= sizeof(list) / sizeof(list[0]))
		return -1;
	*name = list[i].name;
	return list[i].value;
}

const struct peer peer = {.control = control, .data = data, .remote = remote, .atomic = atomic, .inline_head = inline_head, .parse_cqe = parse_cqe, .set = set, .get = get, .constant = constant};
