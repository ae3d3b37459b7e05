// SPDX-License-Identifier: MIT

package fabric

// OpKind is what an Op does.
type OpKind uint8

// The kinds of ops. OpRecv's completion has the kind OpRecv; a peer's OpRemoteData write completes
// at the target as OpRemoteWrite.
const (
	OpSend OpKind = 1 + iota
	OpRecv
	OpRead          // remote to local
	OpWrite         // local to remote
	OpAtomic        // remote = remote op operand; see Atomic
	OpFetchAtomic   // the same, and what was there before comes back
	OpCompareAtomic // remote = operand where it compares with Atomic.Compare; what was there before comes back
	OpRemoteWrite   // completions only: a peer wrote with OpRemoteData
)

var opKindText = [...]string{OpSend: "send", OpRecv: "recv", OpRead: "read", OpWrite: "write", OpAtomic: "atomic",
	OpFetchAtomic: "fetching atomic", OpCompareAtomic: "comparing atomic", OpRemoteWrite: "remote write"}

// String is the kind in lower case.
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
	// OpWantCQE reports success although the binding is selective.
	OpWantCQE OpFlags = 1 << iota

	// OpRemoteData carries Op.Data to the peer: with a send, or as the OpRemoteWrite completion of a
	// write whose bytes are visible.
	OpRemoteData

	// OpInject lets the caller reuse the buffer when Submit returns. The op has up to
	// Limits.MaxInject bytes and never reports success.
	OpInject

	// OpFence starts the op after every earlier op of this endpoint to the same peer ended.
	OpFence

	// The completion levels follow: what a success promises at least. A provider may promise more.

	// OpInjectComplete: the local memory may be used again.
	OpInjectComplete

	// OpTransmitComplete: the peer has the bytes. It is the default of sends. Messages that wait there
	// for a receive end with an EPMsg's connection, and outlive an EPRDM's sender.
	OpTransmitComplete

	// OpDeliveryComplete: the bytes are in the memory of a receive, or visible in the region. It is the
	// default of RMA and atomics.
	OpDeliveryComplete
)

// OpLevels are the flags that choose a completion level. An op has one of them or none.
const OpLevels = OpInjectComplete | OpTransmitComplete | OpDeliveryComplete

// MRDesc is a local region's descriptor; zero where the provider needs none. With MRHMEM device
// memory needs one, host memory none.
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
	Key  uint64 // RemoteMR.Key; the same for all segments of one op
}

// An Op is one piece of work. Local bytes are Seg followed by More, remote bytes RSeg followed by
// RMore; both sides add up to the same length, and need not be cut alike. A zero Len is allowed.
//
// A read or write of Blocks has these for its pieces, and no More or RMore: Seg and RSeg are runs
// of memory that all blocks lie in. Providers take so many as Limits.BlockLimit says.
//
// An atomic op has one segment on either side, whose length is a number of whole elements of
// Atomic.Type, up to Limits.MaxAtomic bytes. RSeg.Addr is aligned to the element.
type Op struct {
	Kind   OpKind
	Flags  OpFlags
	Dest   AVAddr // EPRDM: the peer, but for receives; EPMsg: 0
	Seg    Seg
	More   []Seg
	RSeg   RSeg
	RMore  []RSeg
	Blocks *Blocks // belongs to the provider until the op ended, as More and RMore do
	Atomic *Atomic // of the atomic kinds; belongs to the provider until the op ended
	Data   uint64  // with OpRemoteData
	Ctx    uint64  // comes back in the completion
}

// Len is the number of local bytes.
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

// Access are the rights that op needs at its target: of atomics, plain ones write, AtomicRead
// reads, all others do both.
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

// RLen is the number of remote bytes.
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
	Src   AVAddr  // OpRecv and OpRemoteWrite on EPRDM: who sent, 0 if the address vector does not know them
	Len   uint64  // bytes moved or received
	Data  uint64
}

// An ErrEntry reports that an op failed.
type ErrEntry struct {
	Completion
	Err    Errno
	Detail string // the provider's own words: peer, values, cause
}

// Error returns the entry as an error that wraps its Errno.
func (e *ErrEntry) Error() string {
	if e.Detail == "" {
		return e.Kind.String() + ": " + e.Err.Error()
	}
	return e.Kind.String() + ": " + e.Detail + ": " + e.Err.Error()
}

// Unwrap returns the Errno.
func (e *ErrEntry) Unwrap() error { return e.Err }

// Dir is a direction of an endpoint; both may be or-ed.
type Dir uint8

// The directions.
const (
	DirTransmit Dir = 1 << iota
	DirRecv
)

// EventKind is what happened to a connection.
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
