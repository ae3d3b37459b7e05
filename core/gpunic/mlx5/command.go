// SPDX-License-Identifier: MIT

package mlx5

import (
	"encoding/binary"
	"fmt"
)

// Opcodes of commands: MLX5_CMD_OP_* of the Linux driver's include/linux/mlx5/mlx5_ifc.h. That
// file, the public description of the command interface, is also the source of all field offsets.
// It lacks dbr_umem_id of a completion queue, wq_umem_*, cq_umem_* and send_dbr_mode; these are
// from DPDK's drivers/common/mlx5/mlx5_prm.h and DOCA GPUNetIO's mlx5_ifc.h.
const (
	OpQueryHCACap = 0x100
	OpCreateMKey  = 0x200
	OpDestroyMKey = 0x202
	OpCreateCQ    = 0x400
	OpDestroyCQ   = 0x401
	OpCreateQP    = 0x500
	OpDestroyQP   = 0x501
	OpRst2Init    = 0x502
	OpInit2RTR    = 0x503
	OpRTR2RTS     = 0x504
	Op2Err        = 0x507
	Op2Rst        = 0x50a
	OpQueryQP     = 0x50b
	OpAllocPD     = 0x800
	OpDeallocPD   = 0x801
	OpAllocUAR    = 0x802
	OpDeallocUAR  = 0x803
)

var opNames = map[uint16]string{
	OpQueryHCACap: "QUERY_HCA_CAP", OpCreateMKey: "CREATE_MKEY", OpDestroyMKey: "DESTROY_MKEY", OpCreateCQ: "CREATE_CQ",
	OpDestroyCQ: "DESTROY_CQ", OpCreateQP: "CREATE_QP", OpDestroyQP: "DESTROY_QP", OpRst2Init: "RST2INIT_QP", OpInit2RTR: "INIT2RTR_QP",
	OpRTR2RTS: "RTR2RTS_QP", Op2Err: "2ERR_QP", Op2Rst: "2RST_QP", OpQueryQP: "QUERY_QP", OpAllocPD: "ALLOC_PD", OpDeallocPD: "DEALLOC_PD",
	OpAllocUAR: "ALLOC_UAR", OpDeallocUAR: "DEALLOC_UAR",
}

// OpName returns the name of a command.
func OpName(op uint16) string {
	if s, ok := opNames[op]; ok {
		return s
	}
	return fmt.Sprintf("command %#x", op)
}

// A Message is a command or its reply.
type Message interface {
	size() int // in bytes
	slots() []slot
}

// Encode returns the bytes of m in the NIC's format.
func Encode(m Message) []byte {
	b := make([]byte, m.size())
	for _, s := range m.slots() {
		s.put(b)
	}
	return b
}

// Decode decodes b into m. b may be longer: many commands end with lists that may be empty.
func Decode(b []byte, m Message) error {
	if len(b) < m.size() {
		return fmt.Errorf("%d bytes for %T, want %d: %w", len(b), m, m.size(), ErrFormat)
	}
	for _, s := range m.slots() {
		s.parse(b)
	}
	return nil
}

// OpOf returns the opcode of a command's bytes, or 0 if they are too short.
func OpOf(in []byte) uint16 {
	if len(in) < headerBytes {
		return 0
	}
	return binary.BigEndian.Uint16(in)
}

const headerBytes = 16

// A Simple is any command that names one object or none.
type Simple struct{ Op, ID uint32 }

func (m *Simple) size() int { return headerBytes }
func (m *Simple) slots() []slot {
	return []slot{{Field{0, 16}, &m.Op}, {Field{0x48, 24}, &m.ID}}
}

// A Reply is the reply to a command, or the beginning of one. ID is the number of a new object.
type Reply struct{ Status, Syndrome, ID uint32 }

func (m *Reply) size() int { return headerBytes }
func (m *Reply) slots() []slot {
	return []slot{{Field{0, 8}, &m.Status}, {Field{0x20, 32}, &m.Syndrome}, {Field{0x48, 24}, &m.ID}}
}

// A QueryHCACap queries the NIC's capabilities. Mode is 1 for the current values of the general
// capabilities.
type QueryHCACap struct{ Op, Mode uint32 }

func (m *QueryHCACap) size() int { return headerBytes }
func (m *QueryHCACap) slots() []slot {
	return []slot{{Field{0, 16}, &m.Op}, {Field{0x30, 16}, &m.Mode}}
}

// Caps is the reply to QueryHCACap, limited to the fields that mori uses: cmd_hca_cap.
type Caps struct {
	Reply
	VHCAID                                 uint32
	LogMaxQPSize, LogMaxQP                 uint32 // of blocks in a queue, of queue pairs
	LogMaxCQSize, LogMaxCQ, LogMaxMKey     uint32
	LogMaxReadsInitiated, LogMaxReadsTaken uint32 // pending reads and atomics of a queue pair
	NumPorts                               uint32
}

func (m *Caps) size() int { return headerBytes + 4096 }
func (m *Caps) slots() []slot {
	return append(m.Reply.slots(), within(0x80, []slot{
		{Field{0x30, 16}, &m.VHCAID}, {Field{0x88, 8}, &m.LogMaxQPSize}, {Field{0x9b, 5}, &m.LogMaxQP},
		{Field{0xc8, 8}, &m.LogMaxCQSize}, {Field{0xdb, 5}, &m.LogMaxCQ}, {Field{0xea, 6}, &m.LogMaxMKey},
		{Field{0x14a, 6}, &m.LogMaxReadsInitiated}, {Field{0x15a, 6}, &m.LogMaxReadsTaken}, {Field{0x1b8, 8}, &m.NumPorts},
	})...)
}

// A CreateMKey registers memory: mkc.
type CreateMKey struct {
	Op                               uint32
	UmemValid                        bool
	UmemID                           uint32
	UmemOffset                       uint64
	Atomic, RemoteWrite, RemoteRead  bool
	LocalWrite, LocalRead            bool
	RelaxedOrdering                  bool // of writes
	AccessMode, QPN, Variant, PD     uint32
	Addr, Bytes                      uint64
	Translations, TranslationsActual uint32 // of 16 bytes, two pages each
	LogPageSize                      uint32
}

// Access mode of a mailbox and "any queue pair".
const (
	AccessModeMTT = 1
	AnyQPN        = 0xffffff
)

func (m *CreateMKey) size() int { return 0x880 / 8 }
func (m *CreateMKey) slots() []slot {
	return append([]slot{
		{Field{0, 16}, &m.Op}, {Field{0x61, 1}, &m.UmemValid}, {Field{0x300, 32}, &m.TranslationsActual},
		{Field{0x320, 32}, &m.UmemID}, {Field{0x340, 64}, &m.UmemOffset},
	}, within(0x80, []slot{
		{Field{0x0d, 1}, &m.RelaxedOrdering}, {Field{0x11, 1}, &m.Atomic}, {Field{0x12, 1}, &m.RemoteWrite}, {Field{0x13, 1}, &m.RemoteRead},
		{Field{0x14, 1}, &m.LocalWrite}, {Field{0x15, 1}, &m.LocalRead}, {Field{0x16, 2}, &m.AccessMode},
		{Field{0x20, 24}, &m.QPN}, {Field{0x38, 8}, &m.Variant}, {Field{0x68, 24}, &m.PD},
		{Field{0x80, 64}, &m.Addr}, {Field{0xc0, 64}, &m.Bytes}, {Field{0x1a0, 32}, &m.Translations}, {Field{0x1db, 5}, &m.LogPageSize},
	})...)
}

// A CreateCQ makes a completion queue: cqc. With UmemValid, DBRAddr is an offset in that memory.
type CreateCQ struct {
	Op                uint32
	DBRUmemValid      bool
	DBRUmemID         uint32
	DBRAddr           uint64
	EntrySize         uint32 // 0: 64 bytes
	Collapsed         bool   // cc: all completions go to the first entry
	IgnoreOverrun     bool   // oi
	Compressed        bool
	LogSize, UARPage  uint32
	EQN               uint32
	LogPageSize       uint32
	UmemValid         bool
	UmemID            uint32
	UmemOffset        uint64
	Period, MaxCount  uint32
	PageOffset, State uint32
}

func (m *CreateCQ) size() int { return 0x880 / 8 }
func (m *CreateCQ) slots() []slot {
	return append([]slot{
		{Field{0, 16}, &m.Op}, {Field{0x280, 64}, &m.UmemOffset}, {Field{0x2c0, 32}, &m.UmemID}, {Field{0x2e0, 1}, &m.UmemValid},
	}, within(0x80, []slot{
		{Field{0x06, 1}, &m.DBRUmemValid}, {Field{0x08, 3}, &m.EntrySize}, {Field{0x0b, 1}, &m.Collapsed}, {Field{0x0e, 1}, &m.IgnoreOverrun},
		{Field{0x11, 1}, &m.Compressed}, {Field{0x14, 4}, &m.State}, {Field{0x20, 32}, &m.DBRUmemID}, {Field{0x54, 6}, &m.PageOffset},
		{Field{0x63, 5}, &m.LogSize}, {Field{0x68, 24}, &m.UARPage}, {Field{0x84, 12}, &m.Period}, {Field{0x90, 16}, &m.MaxCount},
		{Field{0xb8, 8}, &m.EQN}, {Field{0xc3, 5}, &m.LogPageSize}, {Field{0x1c0, 64}, &m.DBRAddr},
	})...)
}
