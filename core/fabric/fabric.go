// SPDX-License-Identifier: MIT

package fabric

import "context"

// A Provider is a transport. Its name identifies it in a Registry, and Open gives access to its
// network.
type Provider interface {
	// Name returns the provider's name in lower case, such as "tcp".
	Name() string

	// Version returns the provider's own version and the API version that it was written for.
	Version() (provider, api Version)

	// GetInfo lists the ways to reach node:service from here that satisfy hints, best first, or
	// returns ErrNoData. It opens no device.
	GetInfo(ctx context.Context, node, service string, hints *Info) ([]*Info, error)

	// Open opens the fabric that in describes, a result of GetInfo.
	Open(ctx context.Context, in *Info) (Fabric, error)
}

// A Fabric is one network of one provider.
type Fabric interface {
	// Domain opens the device that in describes.
	Domain(ctx context.Context, in *Info) (Domain, error)

	// Listen accepts connections at in.Src, or at an address that the provider chooses if it is empty.
	Listen(ctx context.Context, in *Info) (Listener, error)

	// EQ opens an event queue that holds up to size events.
	EQ(size int) (EQ, error)

	// Close frees the fabric, or returns ErrBusy while a child is open.
	Close() error
}

// A Listener accepts connections.
type Listener interface {
	// Addr returns the address that peers connect to.
	Addr() Addr

	// Accept waits for the next request until ctx is done or the listener closes (ErrClosed). The
	// listener drops clients that violate the protocol.
	Accept(ctx context.Context) (ConnReq, error)

	// Close stops listening. Requests that Accept returned stay valid.
	Close() error
}

// A ConnReq is a peer's connection request. Connector.Accept or Reject answers it, once.
type ConnReq interface {
	// Peer returns the address of the requesting peer, as far as the transport knows it.
	Peer() Addr

	// Private returns the peer's private data, up to Limits.MaxPrivate bytes. Do not change it.
	Private() []byte

	// Reject rejects the request. The peer receives private as RejectError.Data.
	Reject(private []byte) error
}

// A Domain is one device. It owns memory regions, queues and endpoints.
type Domain interface {
	// Endpoint makes an idle endpoint of type in.EPType. A nil in or a zero type makes an EPMsg.
	Endpoint(in *Info) (Endpoint, error)

	// CQ opens a completion queue that holds at least size entries.
	CQ(size int) (CQ, error)

	// Counter opens a counter at zero. ErrNoSys if this provider does not count in unit.
	Counter(unit CountUnit) (Counter, error)

	// AV opens an address vector with initial space for size addresses.
	AV(size int) (AV, error)

	// Reg registers a buffer for the rights in access. The caller keeps the buffer alive until
	// MR.Close has returned.
	Reg(buf Buffer, access Access, key RegionKey) (MR, error)

	// Import makes a peer's region usable as RSeg.Key in this domain's ops. It does not contact the
	// peer: a wrong key fails when an op uses it.
	Import(raw []byte) (RemoteMR, error)

	// Close frees the domain, or returns ErrBusy while a child is open.
	Close() error
}

// An Endpoint moves bytes to and from peers. An EPMsg has one peer and is a Connector, too. An
// EPRDM reaches all peers of its address vector.
//
//	EPMsg  idle ──Bind…──▶ idle ──Enable──▶ enabled ──Connect,Accept──▶ connected
//	       connected ──Shutdown here or by the peer, or a broken connection──▶ shut ──Close──▶ closed
//	EPRDM  idle ──Bind…──▶ idle ──Enable──▶ enabled ──Close──▶ closed
//
// Submit before Enable returns ErrOpBadState. An EPMsg accepts receives once it is enabled, and
// other ops once it is connected (ErrNotConn before). When the connection ends, every pending op
// ends with an error entry before the EQ reports it.
//
// An EPRDM connects to a peer at the first op to it; the op waits for the connection. If connecting
// fails or the connection breaks, the pending ops to this peer end with error entries, and the next
// op connects again. Ops to other peers are not affected. Ops to different peers are not ordered. A
// Dest that is not in the address vector is ErrInvalid.
type Endpoint interface {
	// BindCQ sends the completions of dir to cq. If selective, only ops with OpWantCQE report success.
	// Only in state idle, and once for each direction.
	BindCQ(cq CQ, dir Dir, selective bool) error

	// BindCounter makes c count the given events. Only in state idle, and once for each event. The
	// counter counts ops whether or not they have a completion.
	BindCounter(c Counter, events CountEvents) error

	// BindAV sets the address vector of Op.Dest and Completion.Src. Only in state idle, and once.
	// ErrInvalid on an EPMsg.
	BindAV(av AV) error

	// BindEQ sends connection events to eq. Only in state idle. An EPRDM has no connection events.
	BindEQ(eq EQ) error

	// Enable ends the configuration. ErrNoCQ unless both directions have a CQ; ErrNoAV for an EPRDM
	// without an AV.
	Enable() error

	// Name returns the address of an enabled EPRDM, which peers insert into their address vectors:
	// Info.Src, or an address that the provider chose. ErrOpBadState before Enable, ErrNoSys on an
	// EPMsg.
	Name() (Addr, error)

	// Submit queues a prefix of ops in order and returns its length. It does not wait for the network.
	// The error says why ops[n] was not accepted; ErrAgain means that the queue is full. Safe for
	// concurrent use.
	Submit(ops []Op) (n int, err error)

	// Cancel ends pending receives that have this Ctx with ErrCanceled entries. Without one it does
	// nothing.
	Cancel(ctx uint64) error

	// Close ends the connection and ends every op with an error entry. It returns when none of them
	// can write to local memory any more.
	Close() error
}

// A Connector is an Endpoint that connects to one peer (type EPMsg).
type Connector interface {
	// Connect requests a connection from the listener at to and returns the peer's private data. The
	// error is a RejectError if the peer rejected the request.
	Connect(ctx context.Context, to Addr, private []byte) (reply []byte, err error)

	// Accept answers req, takes ownership of it, and sends private to the peer.
	Accept(ctx context.Context, req ConnReq, private []byte) error

	// Shutdown ends the connection in order. Pending ops end with ErrConnAborted before it returns,
	// and the peer gets ErrShutdown. Completions stay readable.
	Shutdown() error

	// Peer returns the peer's address, which is empty before the endpoint is connected.
	Peer() Addr
}

// A Prober reports, before or after connecting, whether a provider uses its best data path to its
// peer, and why not.
type Prober interface {
	// Path names the data path to this peer, such as "cma" or "stream", and the reason for it.
	Path() (name, reason string)
}

// A WaitObject lets a program wait for a queue in poll, epoll or its own event loop.
//
//	for {
//		for q.TryWait() == ErrAgain { read until the queue is empty }
//		sleep until FD is readable
//	}
//
// Any entry that arrives after TryWait returned nil makes the descriptor readable, so no wake-up is
// lost.
type WaitObject interface {
	// FD returns a descriptor to wait on for input, the same at every call. The queue owns it: do not
	// read, write or close it.
	FD() (int, error)

	// TryWait returns nil, and makes FD not readable, if there is nothing to read. It returns ErrAgain
	// if there is something to read or Signal was called; read first, then call it again. One waiter
	// at a time.
	TryWait() error
}

// A CQ is a completion queue. Safe for concurrent use; each entry is delivered once.
type CQ interface {
	WaitObject

	// Read fills dst without blocking. It returns ErrAgain if the queue is empty. It returns ErrAvail
	// if the next entry is an error, which ReadErr returns; successes before it come first.
	Read(dst []Completion) (int, error)

	// Wait is a blocking Read. It parks until there is an entry, ctx is done (its error), Signal is
	// called (0, nil), or the queue closes (ErrClosed).
	Wait(ctx context.Context, dst []Completion) (int, error)

	// ReadErr pops the next error entry. ErrAgain if the next entry is not an error.
	ReadErr(e *ErrEntry) error

	// Signal wakes one Wait: a current one, or else the next.
	Signal() error

	// OnReady sets a function that the queue calls after each added entry, on the goroutine that adds
	// it, and once immediately if the queue is not empty. The call may happen inside Submit and with
	// locks of the provider held. So fn must not block, and may call only Read and ReadErr. It avoids
	// the hand-over to a goroutine in Wait. nil removes fn; a call in progress may still be running.
	OnReady(fn func())

	// Close frees the queue, or returns ErrBusy while an endpoint is bound.
	Close() error
}

// An EQ is a queue of connection events. Safe for concurrent use.
type EQ interface {
	WaitObject

	// Read pops an event without blocking. ErrAgain if the queue is empty.
	Read() (Event, error)

	// Wait is a blocking Read. It parks until there is an event, ctx is done, or the queue closes
	// (ErrClosed).
	Wait(ctx context.Context) (Event, error)

	// Close frees the queue, or returns ErrBusy while an endpoint is bound.
	Close() error
}

// A Counter counts completed ops, successes and failures separately. Safe for concurrent use.
type Counter interface {
	WaitObject // ready for reading when the value or the error value has changed

	// Read returns the number of successes.
	Read() uint64

	// ReadErr returns the number of failures. Wait does not report these failures again.
	ReadErr() uint64

	// Add adds to the number of successes, AddErr to that of failures.
	Add(n uint64) error
	AddErr(n uint64) error

	// Set sets the number of successes, SetErr that of failures.
	Set(v uint64) error
	SetErr(v uint64) error

	// Wait parks until Read is at least threshold (nil), there are failures that ReadErr has not
	// returned (ErrAvail), ctx is done (its error), or the counter closes (ErrClosed).
	Wait(ctx context.Context, threshold uint64) error

	// Close frees the counter, or returns ErrBusy while an endpoint is bound.
	Close() error
}

// An AV is an address vector: it maps addresses of EPRDM peers to small numbers. Safe for
// concurrent use.
type AV interface {
	// Insert adds addresses and returns their numbers, in order. An address that is already in the
	// vector keeps its number. If any address is invalid, Insert adds none and returns ErrInvalid.
	Insert(addrs ...Addr) ([]AVAddr, error)

	// Remove removes a number, which may be reused for another address. Pending ops are not affected.
	// ErrInvalid if the vector does not have it.
	Remove(a AVAddr) error

	// Lookup returns the address of a number. ErrInvalid if the vector does not have it.
	Lookup(a AVAddr) (Addr, error)

	// Close frees the vector, or returns ErrBusy while an endpoint is bound.
	Close() error
}

// An AtomicQuerier is a Domain that supports atomics.
type AtomicQuerier interface {
	// QueryAtomic returns the most elements of one op of this kind. ErrNoSys if the provider does not
	// support op for this type, ErrInvalid if the combination is never valid.
	QueryAtomic(kind OpKind, op AtomicOp, t DataType) (count int, err error)
}

// An MR is a registered local buffer.
type MR interface {
	// Desc returns the descriptor for Seg.MR, where the provider's MRMode has MRLocal.
	Desc() MRDesc

	// Raw returns the key that a peer passes to Domain.Import. Do not change it.
	Raw() []byte

	// Close revokes the region: once it has returned, no peer can access the buffer. It waits a
	// bounded time for accesses in progress. A peer that does not finish is disconnected.
	Close() error
}

// A Prefetcher is an MR whose provider prepares a region at the first op that uses it, for example
// by having a NIC pin its memory, and can do so earlier.
type Prefetcher interface {
	// Prefetch prepares the region now, which may take seconds for many GiB. It returns
	// ErrNotSupported if the provider has nothing to prepare. Any other error says why no device
	// accepts the region. Ops on it then use another data path or fail, as they would without
	// Prefetch.
	Prefetch() error
}

// A RemoteMR is a peer's region, as ops refer to it.
type RemoteMR interface {
	// Key returns the value for RSeg.Key.
	Key() uint64

	// Base returns the value that is added to an offset in the region to get RSeg.Addr.
	Base() uint64

	// Close forgets the region. Pending ops are not affected.
	Close() error
}
