// SPDX-License-Identifier: MIT

package mlx5

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"mori/native/mlx5/headertest"
)

// TestConstantsAreTheHeaders holds numbers against mlx5dv.h.
func TestConstantsAreTheHeaders(t *testing.T) {
	headertest.Need(t)
	ours := map[string]int64{
		"MLX5_OPCODE_NOP": OpNop, "MLX5_OPCODE_RDMA_WRITE": OpWrite, "MLX5_OPCODE_RDMA_WRITE_IMM": OpWriteImm, "MLX5_OPCODE_SEND": OpSend,
		"MLX5_OPCODE_SEND_IMM": OpSendImm, "MLX5_OPCODE_RDMA_READ": OpRead, "MLX5_OPCODE_ATOMIC_CS": OpCompareSwap,
		"MLX5_OPCODE_ATOMIC_FA": OpFetchAdd, "MLX5_OPCODE_ATOMIC_MASKED_CS": OpMaskedSwap, "MLX5_OPCODE_ATOMIC_MASKED_FA": OpMaskedAdd,
		"MLX5_SEND_WQE_BB": BlockBytes, "MLX5_WQE_CTRL_CQ_UPDATE": FlagSignalled, "MLX5_WQE_CTRL_SOLICITED": FlagSolicited,
		"MLX5_WQE_CTRL_FENCE": FlagFence, "MLX5_INVALID_LKEY": InvalidLKey, "MLX5_CQE_REQ": CQEReq, "MLX5_CQE_RESP_WR_IMM": CQERecvImm,
		"MLX5_CQE_RESP_SEND": CQERecvSend, "MLX5_CQE_RESP_SEND_IMM": CQERecvSendImm, "MLX5_CQE_REQ_ERR": CQEReqError,
		"MLX5_CQE_RESP_ERR": CQERecvError, "MLX5_CQE_INVALID": CQEInvalid,
		"MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR": int64(SyndromeLength), "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR": int64(SyndromeOperation),
		"MLX5_CQE_SYNDROME_LOCAL_PROT_ERR": int64(SyndromeProtection), "MLX5_CQE_SYNDROME_WR_FLUSH_ERR": int64(SyndromeFlush),
		"MLX5_CQE_SYNDROME_MW_BIND_ERR": int64(SyndromeBind), "MLX5_CQE_SYNDROME_BAD_RESP_ERR": int64(SyndromeBadResponse),
		"MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR": int64(SyndromeLocalAccess), "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR": int64(SyndromeRemoteInvalid),
		"MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR": int64(SyndromeRemoteAccess), "MLX5_CQE_SYNDROME_REMOTE_OP_ERR": int64(SyndromeRemoteOp),
		"MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR": int64(SyndromeRetry), "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR": int64(SyndromeRNR),
		"MLX5_RCV_DBR": 0, "MLX5_SND_DBR": 1, "sizeof mlx5_cqe64": CQEBytes, "sizeof mlx5_wqe_ctrl_seg": SegmentBytes,
		"sizeof mlx5_wqe_raddr_seg": SegmentBytes, "sizeof mlx5_wqe_data_seg": SegmentBytes, "sizeof mlx5_wqe_atomic_seg": SegmentBytes,
	}
	theirs := headertest.Constants()
	for name, v := range ours {
		if got, ok := theirs[name]; !ok || got != v {
			t.Errorf("%s is %#x (known: %v), ours is %#x", name, got, ok, v)
		}
	}
	for name := range theirs {
		if _, ok := ours[name]; !ok {
			t.Errorf("%s is compared with nothing", name)
		}
	}
}

// TestSegmentsAreTheHeaders writes random segments by both, and has each read what the other wrote.
func TestSegmentsAreTheHeaders(t *testing.T) {
	headertest.Need(t)
	r := rand.New(rand.NewPCG(1, 2))
	same := func(what string, ours, theirs []byte) {
		t.Helper()
		if !bytes.Equal(ours, theirs) {
			t.Fatalf("%s: ours %x, the header's %x", what, ours, theirs)
		}
	}
	for range 1000 {
		ours, theirs := make([]byte, 16), make([]byte, 16)
		c := Control{
			OpMod: uint8(r.Uint32()), Opcode: uint8(r.Uint32()), Index: uint16(r.Uint32()), QPN: r.Uint32() >> 8, Segments: uint8(r.IntN(64)),
			Flags: uint8(r.Uint32()), Imm: r.Uint32(),
		}
		c.Put(ours)
		headertest.Control(theirs, c.Index, c.Opcode, c.OpMod, c.QPN, c.Flags, c.Segments, c.Imm)
		same("control", ours, theirs)
		if got := ParseControl(theirs); got != c {
			t.Fatalf("control: read %+v, want %+v", got, c)
		}
		d := Data{Bytes: r.Uint32(), Key: r.Uint32(), Addr: r.Uint64()}
		d.Put(ours)
		headertest.Data(theirs, d.Bytes, d.Key, d.Addr)
		same("data", ours, theirs)
		if got := ParseData(theirs); got != d {
			t.Fatalf("data: read %+v, want %+v", got, d)
		}
		m := Remote{Addr: r.Uint64(), Key: r.Uint32()}
		m.Put(ours)
		headertest.Remote(theirs, m.Addr, m.Key)
		same("remote", ours, theirs)
		a := Atomic{Width: 8, Swap: r.Uint64(), Compare: r.Uint64()}
		a.Put(ours, OpCompareSwap)
		headertest.Atomic(theirs, a.Swap, a.Compare)
		same("atomic", ours, theirs)
		n := r.IntN(12)
		PutInline(ours, ours[:n])
		headertest.InlineHead(theirs, uint32(n))
		same("inline", ours[:4], theirs[:4])
	}
}

// TestCompletionsAreTheHeaders has the header read what we wrote.
func TestCompletionsAreTheHeaders(t *testing.T) {
	headertest.Need(t)
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		c := CQE{
			Imm: r.Uint32(), Bytes: r.Uint32(), WQEOpcode: uint8(r.Uint32()), QPN: r.Uint32() >> 8, Counter: uint16(r.Uint32()),
			Opcode: uint8(r.IntN(16)), Format: uint8(r.IntN(4)), Owner: uint8(r.IntN(2)),
		}
		fault := c.Opcode == CQEReqError || c.Opcode == CQERecvError
		if fault {
			c.Bytes, c.Vendor, c.Syndrome = 0, uint8(r.Uint32()), Syndrome(r.Uint32())
		}
		b := make([]byte, CQEBytes)
		c.Put(b)
		h := headertest.ParseCQE(b)
		if h.Opcode != c.Opcode || h.Owner != c.Owner || h.Format != c.Format || h.Counter != c.Counter || h.Imm != c.Imm ||
			h.Last != uint32(c.WQEOpcode)<<24|c.QPN || fault && (h.Syndrome != uint8(c.Syndrome) || h.Vendor != c.Vendor) || !fault && h.Bytes != c.Bytes {
			t.Fatalf("wrote %+v, the header reads %+v", c, h)
		}
		if got := ParseCQE(b); got != c {
			t.Fatalf("read %+v, want %+v", got, c)
		}
	}
}

// TestFieldsAreTheHeaders holds the access to bits of commands against DEVX_SET and DEVX_GET.
func TestFieldsAreTheHeaders(t *testing.T) {
	headertest.Need(t)
	r := rand.New(rand.NewPCG(5, 6))
	ours, theirs := make([]byte, 64), make([]byte, 64)
	for range 10000 {
		bits := 1 + r.IntN(32)
		f := Field{At: r.IntN(16)*32 + r.IntN(33-bits), Bits: bits}
		v := r.Uint32()
		f.Set(ours, uint64(v))
		headertest.Set(theirs, v, f.At, f.Bits)
		if !bytes.Equal(ours, theirs) {
			t.Fatalf("%+v = %#x: ours %x, the header's %x", f, v, ours, theirs)
		}
		if got := f.Get(theirs); got != uint64(headertest.Get(theirs, f.At, f.Bits)) {
			t.Fatalf("%+v: %#x", f, got)
		}
	}
}
