// SPDX-License-Identifier: MIT

package fabric

// OpKind is what an Op does.
type OpKind uint8

// The kinds of ops. OpRecv's completion has the kind OpRecv; a peer's OpRemoteData write completes at the
// target as OpRemoteWrite.
const (
	OpSend OpKind = 1 + iota
	OpRecv
	OpRead        // remote to local
	OpWrite       // local to remote
	OpRemoteWrite // completions only: a peer wrote with OpRemoteData
)

var opKindText = [...]string{OpSend: "send", OpRecv: "recv", OpRead: "read", OpWrite: "write", OpRemoteWrite: "remote write"}

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
	OpWantCQE    OpFlags = 1 << iota // report success although the binding is selective
	OpRemoteData                     // carry Op.Data to the peer: with a send, or with a write as OpRemoteWrite completion after its bytes are visible
	OpInject                         // the buffer may be reused when Submit returns; never reports success; up to Limits.MaxInject bytes
	OpFence                          // start after every earlier op of this endpoint ended
)

// MRDesc is a local region's descriptor; zero where the provider needs none.
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

// An Op is one piece of work. Local bytes are Seg followed by More, remote bytes RSeg followed by RMore; both
// sides add up to the same length, and need not be cut alike. A zero Len is allowed.
type Op struct {
	Kind  OpKind
	Flags OpFlags
	Seg   Seg
	More  []Seg
	RSeg  RSeg
	RMore []RSeg
	Data  uint64 // with OpRemoteData
	Ctx   uint64 // comes back in the completion
}

// Len is the number of local bytes.
func (op *Op) Len() uint64 {
	n := op.Seg.Len
	for i := range op.More {
		n += op.More[i].Len
	}
	return n
}

// RLen is the number of remote bytes.
func (op *Op) RLen() uint64 {
	n := op.RSeg.Len
	for i := range op.RMore {
		n += op.RMore[i].Len
	}
	return n
}

// A Completion tells that an op ended well.
type Completion struct {
	Ctx   uint64
	Kind  OpKind
	Flags OpFlags // OpRemoteData if Data is valid
	Len   uint64  // bytes moved or received
	Data  uint64
}

// An ErrEntry tells that an op failed.
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
	EventShutdown            // the connection ended; Err tells how
)

// An Event is an entry of an EQ.
type Event struct {
	Kind EventKind
	EP   Endpoint
	Err  error // EventShutdown: wraps ErrShutdown (good order), ErrConnReset, ErrProtocol...
}
