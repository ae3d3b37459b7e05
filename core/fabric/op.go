// SPDX-License-Identifier: MIT

package fabric

// OpKind is the kind of an Op.
type OpKind uint8

// The kinds of ops. A receive completes as OpRecv. A peer's write with OpRemoteData completes at
// the target as OpRemoteWrite.
const (
	OpSend OpKind = 1 + iota
	OpRecv
	OpRead          // remote to local
	OpWrite         // local to remote
	OpAtomic        // remote = remote op operand; see Atomic
	OpFetchAtomic   // the same, and returns the previous value
	OpCompareAtomic // remote = operand if the comparison with Atomic.Compare holds; returns the previous value
	OpRemoteWrite   // completions only: a peer wrote with OpRemoteData
)

var opKindText = [...]string{OpSend: "send", OpRecv: "recv", OpRead: "read", OpWrite: "write", OpAtomic: "atomic",
	OpFetchAtomic: "fetching atomic", OpCompareAtomic: "comparing atomic", OpRemoteWrite: "remote write"}

// String returns the kind in lower case.
func (k OpKind) String() string {
	if int(k) < len(opKindText) && opKindText[k] != "" {
		return opKindText[k]
	}
	return "op?"
}

// OpFlags modify an Op.
type OpFlags uint16

// The flags.
const (
	// OpWantCQE requests a completion for a success if the binding is selective.
	OpWantCQE OpFlags = 1 << iota

	// OpRemoteData sends Op.Data to the peer: with a send, or in the OpRemoteWrite completion that
	// follows a write whose bytes are visible.
	OpRemoteData

	// OpInject lets the caller reuse the buffer once Submit has returned. The op is at most
	// Limits.MaxInject bytes long and never reports success.
	OpInject

	// OpFence starts the op once every earlier op of this endpoint to the same peer has ended.
	OpFence

	// The completion levels follow: the minimum that a success guarantees.

	// OpInjectComplete: the caller may reuse the local memory.
	OpInjectComplete

	// OpTransmitComplete: the peer has the bytes. It is the default of sends. Messages that wait at
	// the peer for a receive are lost when an EPMsg's connection ends, but outlive the sender if it is
	// an EPRDM.
	OpTransmitComplete

	// OpDeliveryComplete: the bytes are in the memory of a receive, or visible in the region. It is
	// the default of RMA and atomics.
	OpDeliveryComplete
)

// OpLevels are the flags that select a completion level. An op has at most one of them.
const OpLevels = OpInjectComplete | OpTransmitComplete | OpDeliveryComplete

// MRDesc is a local region's descriptor, or zero where the provider needs none. With MRHMEM, device
// memory needs one and host memory does not.
type MRDesc uint64

// A Seg is a run of local memory.
type Seg struct {
	Addr uint64
	Len  uint64
	MR   MRDesc
}

// An RSeg is a run of remote memory.
type RSeg struct {
	Addr uint64 // RemoteMR.Base + offset
	Len  uint64
	Key  uint64 // RemoteMR.Key; the same for all segments of an op
}

// An Op is one operation. Its local bytes are Seg followed by More, its remote bytes RSeg followed
// by RMore. Both sides have the same total length, but may be split differently. A zero Len is
// allowed.
//
// A read or write with Blocks has no More or RMore. Seg and RSeg are then the ranges of memory that
// contain all blocks. Providers accept up to Limits.BlockLimit blocks.
//
// An atomic op has one segment on either side. Its length is a multiple of the element size of
// Atomic.Type and at most Limits.MaxAtomic bytes. RSeg.Addr is aligned to the element.
type Op struct {
	Kind   OpKind
	Flags  OpFlags
	Dest   AVAddr // EPRDM: the peer, except for receives; EPMsg: 0
	Seg    Seg
	More   []Seg
	RSeg   RSeg
	RMore  []RSeg
	Blocks *Blocks // belongs to the provider until the op has ended, like More and RMore
	Atomic *Atomic // atomic kinds only; belongs to the provider until the op has ended
	Data   uint64  // with OpRemoteData
	Ctx    uint64  // returned in the completion
}

// Len returns the number of local bytes.
func (op *Op) Len() uint64 {
	if op.Blocks != nil {
		return op.Blocks.Bytes()
	}
	n := op.Seg.Len
	for i := range op.More {
		n += op.More[i].Len
	}
	return n
}

// Access returns the rights that op needs at its target. Plain atomics need write, AtomicRead needs
// read, and all other atomics need both.
func (op *Op) Access() Access {
	switch op.Kind {
	case OpWrite, OpAtomic:
		return AccessRemoteWrite
	case OpRead:
		return AccessRemoteRead
	case OpFetchAtomic, OpCompareAtomic:
		if op.Atomic != nil && op.Atomic.Op == AtomicRead {
			return AccessRemoteRead
		}
		return AccessRemoteRead | AccessRemoteWrite
	}
	return 0
}

// LocalSeg returns the i-th local segment of an op without Blocks: Seg is the first.
func (op *Op) LocalSeg(i int) *Seg {
	if i == 0 {
		return &op.Seg
	}
	return &op.More[i-1]
}

// RemoteSeg returns the i-th remote segment of an op without Blocks: RSeg is the first.
func (op *Op) RemoteSeg(i int) *RSeg {
	if i == 0 {
		return &op.RSeg
	}
	return &op.RMore[i-1]
}

// RLen returns the number of remote bytes.
func (op *Op) RLen() uint64 {
	if op.Blocks != nil {
		return op.Blocks.Bytes()
	}
	n := op.RSeg.Len
	for i := range op.RMore {
		n += op.RMore[i].Len
	}
	return n
}

// A Completion reports that an op succeeded.
type Completion struct {
	Ctx   uint64
	Kind  OpKind
	Flags OpFlags // OpRemoteData if Data is valid
	Src   AVAddr  // OpRecv and OpRemoteWrite on EPRDM: the sender, 0 if the address vector does not have it
	Len   uint64  // bytes moved or received
	Data  uint64
}

// An ErrEntry reports that an op failed.
type ErrEntry struct {
	Completion
	Err    Errno
	Detail string // the provider's description: peer, values, cause
}

// Error returns the entry as text. The entry wraps its Errno.
func (e *ErrEntry) Error() string {
	if e.Detail == "" {
		return e.Kind.String() + ": " + e.Err.Error()
	}
	return e.Kind.String() + ": " + e.Detail + ": " + e.Err.Error()
}

// Unwrap returns the Errno.
func (e *ErrEntry) Unwrap() error { return e.Err }

// Dir is a direction of an endpoint. Both may be combined with |.
type Dir uint8

// The directions.
const (
	DirTransmit Dir = 1 << iota
	DirRecv
)

// EventKind is the kind of a connection event.
type EventKind uint8

// The events.
const (
	EventConnected EventKind = 1 + iota
	EventShutdown            // the connection ended; Err is the reason
)

// An Event is an entry of an EQ.
type Event struct {
	Kind EventKind
	EP   Endpoint
	Err  error // EventShutdown: wraps ErrShutdown (good order), ErrConnReset, ErrProtocol...
}
