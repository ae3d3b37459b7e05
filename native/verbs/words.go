// SPDX-License-Identifier: MIT

package verbs

import "fmt"

// Objects of the library. Zero is none.
type (
	Context uintptr // an open device
	PD      uintptr // a protection domain
	MR      uintptr // a memory region
	Channel uintptr // a completion channel
	CQ      uintptr // a completion queue
	QP      uintptr // a queue pair
)

// Access are the rights of a region or a queue pair.
type Access uint32

// Rights. Local reads are always allowed; remote writes and atomics want AccessLocalWrite too.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	// AccessRelaxedOrdering lets writes to the region pass each other; it is left out
	// for a device that does not know it.
	AccessRelaxedOrdering Access = 1 << 20
)

// Keys are those of a region: Local for the SGEs of our own work requests, Remote for those of
// peers.
type Keys struct{ Local, Remote uint32 }

// An SGE is a run of registered memory.
type SGE struct {
	Addr      uint64
	Len, LKey uint32
}

// What a SendWR does.
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
	Fence     uint8 = 1 << 0 // begin when all reads and atomics before are done
	Signaled  uint8 = 1 << 1 // make a WC of its success; failures always make one
	Solicited uint8 = 1 << 2
	Inline    uint8 = 1 << 3 // the bytes are read before PostSend returns, and their LKey is not
)

// A SendWR is a work request of a send queue. Its SGEs are sges[First:First+Count] of PostSend.
// Writes, reads and atomics have RemoteAddr and RKey; OpFetchAdd adds CompareAdd, OpCompareSwap
// puts Swap where CompareAdd is found, and both write the 8 bytes that were there to the SGE.
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

// What a WC is of.
const (
	WCSend         uint8 = 0
	WCWrite        uint8 = 1
	WCRead         uint8 = 2
	WCCompareSwap  uint8 = 3
	WCFetchAdd     uint8 = 4
	WCRecv         uint8 = 128
	WCRecvWriteImm uint8 = 129
)

// A WC is a work completion. Of one whose Status is not StatusSuccess only ID, Status, VendorErr
// and QPNum say something.
type WC struct {
	ID        uint64
	Status    Status
	VendorErr uint32 // the vendor's syndrome
	Bytes     uint32 // of receives, reads and atomics
	Imm       uint32 // as it was given to PostSend, if HasImm
	QPNum     uint32
	Op        uint8
	HasImm    bool
}

// A Status is how a work request ended.
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

// text is names[i], or the number without a name.
func text(names []string, i int, what string) string {
	if i >= 0 && i < len(names) && names[i] != "" {
		return names[i]
	}
	return fmt.Sprintf("%s %d", what, i)
}

// A State is that of a queue pair.
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

// QPInit says how large the queues of a pair are, in work requests, SGEs of each, and bytes that go
// inline.
type QPInit struct {
	SendCQ, RecvCQ                           CQ
	SendWR, RecvWR, SendSGE, RecvSGE, Inline int
	SigAll                                   bool // each SendWR is Signaled
}

// RTR is how a queue pair reaches its peer.
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

// RTS is how a queue pair sends. Timeout is 4.096 µs times two to its power; 0: none. Retries and
// RNRRetries are at most 7, which means infinite for the latter.
type RTS struct {
	PSN                                       uint32
	Timeout, Retries, RNRRetries, MaxRdAtomic uint8
}
