// SPDX-License-Identifier: MIT

package mlx5

// States of a queue pair: MLX5_QPC_STATE_*.
const (
	StateRST  = 0
	StateINIT = 1
	StateRTR  = 2
	StateRTS  = 3
	StateERR  = 6
)

// StateName returns the name of a queue pair's state.
func StateName(s uint32) string {
	names := map[uint32]string{StateRST: "RST", StateINIT: "INIT", StateRTR: "RTR", StateRTS: "RTS", 4: "SQER", 5: "SQD", StateERR: "ERR"}
	if n, ok := names[s]; ok {
		return n
	}
	return "unknown"
}

// Values of fields of a QPContext.
const (
	ServiceRC      = 0 // st: reliable connection
	PathMigrated   = 3 // pm_state: the primary path is in use
	RQRegular      = 0
	RQNone         = 3 // rq_type: no receive queue
	DBRValid       = 0 // send_dbr_mode: the producer index is in the doorbell record
	DBRNone        = 1 // the doorbell has it (MLX5_QPC_SEND_DBR_MODE_NO_DBR_EXT)
	AtomicUpTo8    = 3
	ScatterToCQE32 = 0x11 // cs_req: the NIC writes results of up to 32 bytes to the completion entry, not to memory
	NoTimestamp    = 1    // ts_format: default
)

// Bits of OptParams in a ModifyQP: MLX5_QP_OPTPAR_*. Attributes that a transition requires need no
// bit.
const (
	OptRemoteRead  = 1 << 1
	OptAtomic      = 1 << 2
	OptRemoteWrite = 1 << 3
)

// A QPContext is a NIC's state of a queue pair (qpc), limited to the fields that mori uses.
type QPContext struct {
	State, Service, PathState           uint32
	PD                                  uint32
	MTU, LogMsgMax                      uint32 // MTU is a code: 1 is 256 bytes, 5 is 4096
	LogRQSize, LogRQStride              uint32 // number of entries, and 16-byte units of each
	NoSQ                                bool
	LogSQSize                           uint32 // blocks of 64 bytes
	TimestampFormat                     uint32
	UARPage, SendDBRMode, UserIndex     uint32
	LogPageSize, RemoteQPN              uint32
	Path                                Path
	LogSRAMax, LogRRAMax                uint32 // pending reads and atomics, as requester and as responder
	RetryCount, RNRRetry                uint32
	FlushRecvErrors                     bool // fre
	LogAckReqFreq                       uint32
	NextSendPSN, NextRecvPSN            uint32
	SendCQN, RecvCQN                    uint32
	AtomicMode                          uint32
	RemoteRead, RemoteWrite, RemoteAtom bool
	MinRNRNak                           uint32
	DBRAddr                             uint64
	DBRUmemValid                        bool
	DBRUmemID                           uint32
	RQType                              uint32
	ScatterReq, ScatterRes              uint32 // cs_req and cs_res
	HWSQCounter, SWSQCounter            uint32
}

// A Path is the path to the peer (ads).
type Path struct {
	PKeyIndex, RLID      uint32
	GRH                  bool
	AckTimeout           uint32 // 4.096 us << AckTimeout; 0 is no timeout
	SourceIndex          uint32 // in the port's table of GIDs
	HopLimit, SL         uint32
	GID                  [16]byte
	UDPSourcePort, Port  uint32
	MACHigh16, MACLow32  uint32
	TrafficClass, FlowID uint32
}

func (p *Path) slots() []slot {
	return []slot{
		{Field{0x10, 16}, &p.PKeyIndex}, {Field{0x28, 1}, &p.GRH}, {Field{0x30, 16}, &p.RLID}, {Field{0x40, 5}, &p.AckTimeout},
		{Field{0x48, 8}, &p.SourceIndex}, {Field{0x58, 8}, &p.HopLimit}, {Field{0x64, 8}, &p.TrafficClass}, {Field{0x6c, 20}, &p.FlowID},
		{Field{0x80, 128}, &p.GID}, {Field{0x110, 16}, &p.UDPSourcePort}, {Field{0x124, 4}, &p.SL}, {Field{0x128, 8}, &p.Port},
		{Field{0x130, 16}, &p.MACHigh16}, {Field{0x140, 32}, &p.MACLow32},
	}
}

func (c *QPContext) slots() []slot {
	return append([]slot{
		{Field{0x00, 4}, &c.State}, {Field{0x08, 8}, &c.Service}, {Field{0x13, 2}, &c.PathState}, {Field{0x28, 24}, &c.PD},
		{Field{0x40, 3}, &c.MTU}, {Field{0x43, 5}, &c.LogMsgMax}, {Field{0x49, 4}, &c.LogRQSize}, {Field{0x4d, 3}, &c.LogRQStride},
		{Field{0x50, 1}, &c.NoSQ}, {Field{0x51, 4}, &c.LogSQSize}, {Field{0x58, 2}, &c.TimestampFormat}, {Field{0x68, 24}, &c.UARPage},
		{Field{0x80, 2}, &c.SendDBRMode}, {Field{0x88, 24}, &c.UserIndex}, {Field{0xa3, 5}, &c.LogPageSize}, {Field{0xa8, 24}, &c.RemoteQPN},
		{Field{0x380, 4}, &c.LogAckReqFreq}, {Field{0x388, 3}, &c.LogSRAMax}, {Field{0x38d, 3}, &c.RetryCount}, {Field{0x390, 3}, &c.RNRRetry},
		{Field{0x394, 1}, &c.FlushRecvErrors}, {Field{0x3c8, 24}, &c.NextSendPSN}, {Field{0x3e8, 24}, &c.SendCQN},
		{Field{0x488, 3}, &c.LogRRAMax}, {Field{0x48c, 4}, &c.AtomicMode}, {Field{0x490, 1}, &c.RemoteRead}, {Field{0x491, 1}, &c.RemoteWrite},
		{Field{0x492, 1}, &c.RemoteAtom}, {Field{0x4a3, 5}, &c.MinRNRNak}, {Field{0x4a8, 24}, &c.NextRecvPSN}, {Field{0x4e8, 24}, &c.RecvCQN},
		{Field{0x500, 64}, &c.DBRAddr}, {Field{0x565, 3}, &c.RQType}, {Field{0x5a0, 16}, &c.HWSQCounter}, {Field{0x5b0, 16}, &c.SWSQCounter},
		{Field{0x630, 8}, &c.ScatterReq}, {Field{0x638, 8}, &c.ScatterRes}, {Field{0x683, 1}, &c.DBRUmemValid}, {Field{0x720, 32}, &c.DBRUmemID},
	}, within(0xc0, c.Path.slots())...)
}

// qpcAt is the offset of the context in each command that has one.
const qpcAt = 0xc0

// A CreateQP makes a queue pair. Its memory contains the receive queue, then the send queue.
type CreateQP struct {
	Op         uint32
	QPC        QPContext
	UmemOffset uint64
	UmemID     uint32
	UmemValid  bool
}

func (m *CreateQP) size() int { return 0x880 / 8 }
func (m *CreateQP) slots() []slot {
	return append([]slot{
		{Field{0, 16}, &m.Op}, {Field{0x800, 64}, &m.UmemOffset}, {Field{0x840, 32}, &m.UmemID}, {Field{0x860, 1}, &m.UmemValid},
	}, within(qpcAt, m.QPC.slots())...)
}

// A ModifyQP moves a queue pair to the next state: RST2INIT, INIT2RTR, RTR2RTS.
type ModifyQP struct {
	Op, QPN, OptParams uint32
	QPC                QPContext
}

func (m *ModifyQP) size() int { return 0x880 / 8 }
func (m *ModifyQP) slots() []slot {
	return append([]slot{
		{Field{0, 16}, &m.Op}, {Field{0x48, 24}, &m.QPN}, {Field{0x80, 32}, &m.OptParams},
	}, within(qpcAt, m.QPC.slots())...)
}

// A QueryQPReply is the reply to QUERY_QP.
type QueryQPReply struct {
	Reply
	QPC QPContext
}

func (m *QueryQPReply) size() int { return 0x880 / 8 }
func (m *QueryQPReply) slots() []slot {
	return append(m.Reply.slots(), within(qpcAt, m.QPC.slots())...)
}
