// SPDX-License-Identifier: MIT

package verbs

import "fmt"

// Objects of the library. Zero is no object.
type (
	Context uintptr // an open device
	PD      uintptr // a protection domain
	MR      uintptr // a memory region
	Channel uintptr // a completion channel
	CQ      uintptr // a completion queue
	QP      uintptr // a queue pair
)

// Access is the set of rights of a region or a queue pair.
type Access uint32

// Rights. Local reads are always allowed. Remote writes and atomics also need AccessLocalWrite.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	// AccessRelaxedOrdering lets writes to the region overtake each other. It has no effect where the
	// library or device does not support it.
	AccessRelaxedOrdering Access = 1 << 20
)

// Keys are a region's keys: Local for the SGEs of our own work requests, Remote for those of peers.
type Keys struct{ Local, Remote uint32 }

// An SGE is a range of registered memory.
type SGE struct {
	Addr      uint64
	Len, LKey uint32
}

// The operations of a SendWR.
const (
	OpWrite uint8 = iota
	OpWriteImm
	OpSend
	OpSendImm
	OpRead
	OpCompareSwap
	OpFetchAdd
)

// Flags of a SendWR.
const (
	Fence     uint8 = 1 << 0 // start after all earlier reads and atomics
	Signaled  uint8 = 1 << 1 // a success produces a WC; failures always do
	Solicited uint8 = 1 << 2
	Inline    uint8 = 1 << 3 // PostSend reads the bytes before it returns, and ignores LKey
)

// A SendWR is a work request of a send queue. Its SGEs are sges[First:First+Count] of PostSend.
// Writes, reads and atomics have RemoteAddr and RKey. OpFetchAdd adds CompareAdd. OpCompareSwap
// stores Swap if the value equals CompareAdd. Both write the previous 8 bytes to the SGE.
type SendWR struct {
	ID, RemoteAddr, CompareAdd, Swap uint64
	RKey, Imm                        uint32
	First, Count                     uint32
	Op, Flags                        uint8
}

// A RecvWR is a work request of a receive queue. Its SGEs are sges[First:First+Count] of PostRecv.
type RecvWR struct {
	ID           uint64
	First, Count uint32
}

// The operations of a WC.
const (
	WCSend         uint8 = 0
	WCWrite        uint8 = 1
	WCRead         uint8 = 2
	WCCompareSwap  uint8 = 3
	WCFetchAdd     uint8 = 4
	WCRecv         uint8 = 128
	WCRecvWriteImm uint8 = 129
)

// A WC is a work completion. If Status is not StatusSuccess, only ID, Status, VendorErr and QPNum
// are valid.
type WC struct {
	ID        uint64
	Status    Status
	VendorErr uint32 // the vendor's syndrome
	Bytes     uint32 // of receives, reads and atomics
	Imm       uint32 // as passed to PostSend, if HasImm
	QPNum     uint32
	Op        uint8
	HasImm    bool
}

// A Status is the result of a work request.
type Status uint32

// Statuses.
const (
	StatusSuccess Status = iota
	StatusLocLen
	StatusLocQPOp
	StatusLocEECOp
	StatusLocProt
	StatusFlushed
	StatusMWBind
	StatusBadResp
	StatusLocAccess
	StatusRemInvReq
	StatusRemAccess
	StatusRemOp
	StatusRetryExceeded
	StatusRNRExceeded
	StatusLocRDDViol
	StatusRemInvReadReq
	StatusRemAborted
	StatusInvEECN
	StatusInvEECState
	StatusFatal
	StatusRespTimeout
	StatusGeneral
	StatusTM
	StatusTMRendezvous
)

var statusText = []string{
	"success", "local length error", "local queue pair operation error", "local EE context operation error", "local protection error",
	"flushed, the queue pair is in error", "memory window bind error", "bad response", "local access error", "remote invalid request",
	"remote access error", "remote operation error", "the peer does not answer, retries exceeded", "the peer has no receive posted, retries exceeded",
	"local RDD violation", "remote invalid read request", "remote aborted", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout", "general error", "tag matching error", "tag matching rendezvous incomplete",
}

func (s Status) String() string { return text(statusText, int(s), "status") }

// text returns names[i], or the number if there is no name.
func text(names []string, i int, what string) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

// A State is the state of a queue pair.
type State uint8

// States. A new queue pair is in StateReset.
const (
	StateReset State = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

func (s State) String() string {
	return text([]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}, int(s), "state")
}

// QPInit configures the queues of a pair: the number of work requests, the SGEs of each, and the
// inline bytes.
type QPInit struct {
	SendCQ, RecvCQ                           CQ
	SendWR, RecvWR, SendSGE, RecvSGE, Inline int
	SigAll                                   bool // each SendWR is Signaled
}

// RTR is the path of a queue pair to its peer.
type RTR struct {
	MTU                          int // in bytes: 256, 512, 1024, 2048 or 4096, the same on both sides
	DestQP, PSN                  uint32
	Port, GIDIndex               int // ours
	GID                          [16]byte
	LID                          uint16
	Global                       bool // GID is used; always so with RoCE
	SL, TrafficClass, HopLimit   uint8
	MaxDestRdAtomic, MinRNRTimer uint8
}

// RTS configures how a queue pair sends. The timeout is 4.096 µs times 2^Timeout; 0: none. Retries
// and RNRRetries are at most 7, which means no limit for the latter.
type RTS struct {
	PSN                                       uint32
	Timeout, Retries, RNRRetries, MaxRdAtomic uint8
}
