// SPDX-License-Identifier: MIT

//go:build ofi

package libfabric

// #include <rdma/fabric.h>
// #include <rdma/fi_atomic.h>
// #include <rdma/fi_endpoint.h>
// #include <rdma/fi_eq.h>
// #include "shim.h"
import "C"

// Types of endpoints and formats of addresses.
const (
	EPMsg = C.FI_EP_MSG
	EPRDM = C.FI_EP_RDM

	FormatIn  = C.FI_SOCKADDR_IN
	FormatIn6 = C.FI_SOCKADDR_IN6
	FormatStr = C.FI_ADDR_STR
)

// Flags of capabilities, ops, completions and regions.
const (
	Msg         uint64 = C.FI_MSG
	RMA         uint64 = C.FI_RMA
	Atomic      uint64 = C.FI_ATOMIC
	Source      uint64 = C.FI_SOURCE
	LocalComm   uint64 = C.FI_LOCAL_COMM
	RemoteComm  uint64 = C.FI_REMOTE_COMM
	Read        uint64 = C.FI_READ
	Write       uint64 = C.FI_WRITE
	Recv        uint64 = C.FI_RECV
	Send        uint64 = C.FI_SEND
	Transmit    uint64 = C.FI_TRANSMIT
	RemoteRead  uint64 = C.FI_REMOTE_READ
	RemoteWrite uint64 = C.FI_REMOTE_WRITE

	Completed        uint64 = C.FI_COMPLETION
	Inject           uint64 = C.FI_INJECT
	InjectComplete   uint64 = C.FI_INJECT_COMPLETE
	TransmitComplete uint64 = C.FI_TRANSMIT_COMPLETE
	DeliveryComplete uint64 = C.FI_DELIVERY_COMPLETE
	MatchComplete    uint64 = C.FI_MATCH_COMPLETE
	RemoteCQData     uint64 = C.FI_REMOTE_CQ_DATA
	FetchAtomic      uint64 = C.FI_FETCH_ATOMIC
	CompareAtomic    uint64 = C.FI_COMPARE_ATOMIC

	Context  uint64 = C.FI_CONTEXT
	Context2 uint64 = C.FI_CONTEXT2

	// NoPeer is the address of no peer.
	NoPeer = ^uint64(0)
)

// Rules of memory registration.
const (
	MRLocal     = C.FI_MR_LOCAL
	MRVirtAddr  = C.FI_MR_VIRT_ADDR
	MRAllocated = C.FI_MR_ALLOCATED
	MRProvKey   = C.FI_MR_PROV_KEY
)

// Kinds of events.
const (
	ConnReq   = C.FI_CONNREQ
	Connected = C.FI_CONNECTED
	Shutdown  = C.FI_SHUTDOWN
)

// Kinds of ops.
const (
	OpSend    = C.LF_SEND
	OpRecv    = C.LF_RECV
	OpRead    = C.LF_READ
	OpWrite   = C.LF_WRITE
	OpAtomic  = C.LF_ATOMIC
	OpFetch   = C.LF_FETCH
	OpCompare = C.LF_COMPARE
)

// The first of the consecutive data types and atomic ops, in the order of fi_atomic.h.
const (
	Int8 = C.FI_INT8
	Min  = C.FI_MIN
)

// MaxIOV bounds the segments on either side of an Op, whatever the provider's limit.
const MaxIOV = C.LF_IOV

// ContextSize is the size of the memory at Op.Ctx, which a pending op needs.
const ContextSize = C.sizeof_struct_fi_context2

// A FID is an object of the library, or an info. Zero is no object.
type FID uint64

// A Seg is a range of memory. In an atomic op, Len counts elements.
type Seg struct{ Addr, Len, Desc uint64 }

// An Op is one data transfer. It uses the first NSeg of Segs and NRSeg of RSegs.
type Op struct {
	Ctx, Flags, Peer, Data, Key uint64
	Kind                        uint32
	NSeg, NRSeg                 uint16
	DataType, AtomicOp          uint32
	Segs, RSegs                 [MaxIOV]Seg
	Compare, Result             Seg
}

// A Completion is an entry of a completion queue.
type Completion struct {
	Owner                       uint64 // of the Queue
	Ctx, Flags, Len, Data, From uint64
	Err                         int32 // 0 for a success
	text                        [C.LF_TEXT]byte
}

// A Queue is a completion queue to poll, with a number that the caller chooses.
type Queue struct {
	CQ    FID
	Owner uint64
}

// Hints select among the offers of GetInfo. Empty fields are wildcards.
type Hints struct {
	Provider, Fabric, Domain string
	Source                   string // our own address
	Node, Service            string // the peer's
	Caps, TxOpFlags          uint64
	EPType, MRMode           uint32
}

// An Offer is the contents of an info, flattened.
type Offer struct {
	Provider, Fabric, Domain                    string
	Caps, Mode, TxOrder, RxOrder                uint64
	MaxMsg, Inject, TxSize, RxSize, IOV, RMAIOV uint64
	CQData, KeySize                             uint64
	OrderRAW, OrderWAR, OrderWAW                uint64
	EPType, MRMode, AddrFormat                  uint32
	Src, Dest                                   []byte
}

// An Event is an entry of an event queue. In a ConnReq, the reader must free Info, and FID is the
// listener.
type Event struct {
	FID, Info FID
	Kind      uint32
	Err       int32 // not 0: a connection failed
	Data      []byte
}
