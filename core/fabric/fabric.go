// SPDX-License-Identifier: MIT

package fabric

import "context"

// A Provider is a transport. It registers itself by name; everything else hangs below Open.
type Provider interface {
	// Name is the provider's name in lower case, such as "tcp".
	Name() string

	// Version is the provider's own version and the API version that it was written against.
	Version() (provider, api Version)

	// GetInfo lists what this provider can do between here and node:service that satisfies hints, best
	// first, or ErrNoData. It opens nothing.
	GetInfo(ctx context.Context, node, service string, hints *Info) ([]*Info, error)

	// Open returns the fabric that an answer of GetInfo named.
	Open(ctx context.Context, in *Info) (Fabric, error)
}

// A Fabric is one network of one provider.
type Fabric interface {
	// Domain opens the device that in names.
	Domain(ctx context.Context, in *Info) (Domain, error)

	// Listen starts to accept connections at in.Src, or at an address of the provider's choice if
	// empty.
	Listen(ctx context.Context, in *Info) (Listener, error)

	// EQ opens an event queue that holds up to size events.
	EQ(size int) (EQ, error)

	// Close frees the fabric, or answers ErrBusy.
	Close() error
}

// A Listener accepts connections.
type Listener interface {
	// Addr is where peers connect to.
	Addr() Addr

	// Accept waits for the next request until ctx is done or the listener closes (ErrClosed).
	// A client that breaks the protocol is dropped and never seen here.
	Accept(ctx context.Context) (ConnReq, error)

	// Close stops listening. Requests already handed out live on.
	Close() error
}

// A ConnReq is a peer's wish to connect. It ends by Connector.Accept or Reject, once.
type ConnReq interface {
	// Peer is the address of the one who asks, as far as the transport knows it.
	Peer() Addr

	// Private is the peer's private data, up to Limits.MaxPrivate bytes. Do not change it.
	Private() []byte

	// Reject refuses with private data, which reaches the peer as RejectError.Data.
	Reject(private []byte) error
}

// A Domain is one device: the home of memory, queues and endpoints.
type Domain interface {
	// Endpoint makes an endpoint of type in.EPType in state idle; nil and zero make an EPMsg.
	Endpoint(in *Info) (Endpoint, error)

	// CQ opens a completion queue that holds at least size entries.
	CQ(size int) (CQ, error)

	// Counter opens a counter at zero. ErrNoSys if this provider does not count in unit.
	Counter(unit CountUnit) (Counter, error)

	// AV opens an address vector with space for size addresses to begin with.
	AV(size int) (AV, error)

	// Reg registers a buffer for the rights in access. The buffer stays the caller's, who keeps it
	// alive until MR.Close returned.
	Reg(buf Buffer, access Access, key RegionKey) (MR, error)

	// Import makes a peer's region usable as RSeg.Key of ops of this domain. It sends nothing: a wrong
	// key shows when it is used.
	Import(raw []byte) (RemoteMR, error)

	// Close frees the domain, or answers ErrBusy.
	Close() error
}

// An Endpoint moves bytes to and from peers: one if it is an EPMsg, which is a Connector, too, and
// all those of its address vector if it is an EPRDM.
//
//	EPMsg  idle ──Bind…──▶ idle ──Enable──▶ enabled ──Connect,Accept──▶ connected
//	       connected ──Shutdown, the peer's, or a broken connection──▶ shut ──Close──▶ closed
//	EPRDM  idle ──Bind…──▶ idle ──Enable──▶ enabled ──Close──▶ closed
//
// Submit before Enable is ErrOpBadState. On an EPMsg, receives may be posted from enabled on,
// everything else needs connected (ErrNotConn). When the connection ends, every op in flight ends
// with an error entry before the EQ reports it.
//
// An EPRDM connects by itself with the first op to a peer, which waits meanwhile. If that fails, or
// the connection breaks, the ops on their way to this peer, and no others, end with an error entry,
// and the next op tries anew. Ops to different peers are not ordered. A Dest that the address
// vector does not hold is ErrInvalid.
type Endpoint interface {
	// BindCQ sends the completions of dir to cq. With selective, successes are reported only for ops
	// with OpWantCQE. Only in state idle; each direction once.
	BindCQ(cq CQ, dir Dir, selective bool) error

	// BindCounter makes c count what events names. Only in state idle; each event once. Ops count
	// whether or not they complete in the CQ.
	BindCounter(c Counter, events CountEvents) error

	// BindAV makes av the meaning of Op.Dest and Completion.Src. Only in state idle, once; ErrInvalid
	// on an EPMsg.
	BindAV(av AV) error

	// BindEQ sends connection events to eq. Only in state idle. An EPRDM has none, and leaves it
	// empty.
	BindEQ(eq EQ) error

	// Enable ends configuration. ErrNoCQ without a CQ for both directions; ErrNoAV for an EPRDM
	// without an AV.
	Enable() error

	// Name is the address of an enabled EPRDM, for its peers' address vectors: Info.Src, or one of the
	// provider's choice. ErrOpBadState before Enable, ErrNoSys on an EPMsg.
	Name() (Addr, error)

	// Submit queues a prefix of ops in order, says how many, and does not wait for the network. The
	// error returns why ops[n] was not taken: ErrAgain is a full queue. Safe for concurrent use.
	Submit(ops []Op) (n int, err error)

	// Cancel ends the pending receives with this Ctx by ErrCanceled entries. Unknown or done: nothing.
	Cancel(ctx uint64) error

	// Close ends the connection, ends every op with an error entry, and waits until no byte of any of
	// them can still land on this side.
	Close() error
}

// A Connector is an Endpoint that connects (type EPMsg).
type Connector interface {
	// Connect asks the listener at to for a connection and returns its private data. A RejectError if
	// it refused.
	Connect(ctx context.Context, to Addr, private []byte) (reply []byte, err error)

	// Accept answers req, taking it over, and hands private data to the peer.
	Accept(ctx context.Context, req ConnReq, private []byte) error

	// Shutdown ends the connection in good order: ops in flight end with ErrConnAborted before it
	// returns, the peer sees ErrShutdown. Completions stay readable.
	Shutdown() error

	// Peer is the other end's address, empty before connected.
	Peer() Addr
}

// A Prober reports, before or after connecting, why a provider is or is not at its best with its
// peer.
type Prober interface {
	// Path says in words how bytes move to this peer: "cma", "stream".
	Path() (name, reason string)
}

// A WaitObject lets a program that sleeps in poll, epoll or an event loop of its own hear of a
// queue.
//
//	for {
//		for q.TryWait() == ErrAgain { read until there is nothing }
//		sleep until FD is readable
//	}
//
// Whatever comes after TryWait returned nil makes the descriptor readable, so no wake-up is lost.
type WaitObject interface {
	// FD is a descriptor to wait for input on, the same at every call. It is the queue's: do not read,
	// write or close it.
	FD() (int, error)

	// TryWait makes FD not readable and returns nil if there is nothing to read, and ErrAgain if there
	// is, or if Signal was called: then read first. One waiter at a time.
	TryWait() error
}

// A CQ receives completions. Safe for concurrent use; each entry is delivered once.
type CQ interface {
	WaitObject

	// Read fills dst without blocking. ErrAgain if there is nothing; ErrAvail, after the successes
	// that came before it, if the next entry is an error and waits in ReadErr.
	Read(dst []Completion) (int, error)

	// Wait is Read that parks until there is something, ctx is done (its error), Signal was called
	// (0, nil), or the queue closed (ErrClosed).
	Wait(ctx context.Context, dst []Completion) (int, error)

	// ReadErr pops the next error entry, or answers ErrAgain.
	ReadErr(e *ErrEntry) error

	// Signal wakes one Wait, now or the next to come.
	Signal() error

	// OnReady makes the queue call fn, once for now if it is not empty, and after every entry that is
	// added, on the goroutine that adds it: possibly inside Submit, and possibly with locks of the
	// provider held. fn must not block and may call Read and ReadErr only. It saves the hand-over to a
	// goroutine in Wait. nil ends that; a call under way may still be running.
	OnReady(fn func())

	// Close frees the queue, or answers ErrBusy while an endpoint is bound.
	Close() error
}

// An EQ receives connection events. Safe for concurrent use.
type EQ interface {
	WaitObject

	// Read pops an event without blocking, or answers ErrAgain.
	Read() (Event, error)

	// Wait is Read that parks until there is an event, ctx is done, or the queue closed (ErrClosed).
	Wait(ctx context.Context) (Event, error)

	// Close frees the queue, or answers ErrBusy while an endpoint is bound.
	Close() error
}

// A Counter counts ops that ended, successes and failures apart. Safe for concurrent use.
type Counter interface {
	WaitObject // there is something to read after the value or the error value changed

	// Read is the count of successes.
	Read() uint64

	// ReadErr is the count of failures, of which Wait then knows that they are known.
	ReadErr() uint64

	// Add adds to the count of successes, AddErr to that of failures.
	Add(n uint64) error
	AddErr(n uint64) error

	// Set sets the count of successes, SetErr that of failures.
	Set(v uint64) error
	SetErr(v uint64) error

	// Wait parks until Read is at least threshold (nil), there are failures that ReadErr has not
	// returned (ErrAvail), ctx is done (its error), or the counter closed (ErrClosed).
	Wait(ctx context.Context, threshold uint64) error

	// Close frees the counter, or answers ErrBusy while an endpoint is bound.
	Close() error
}

// An AV is an address vector: it gives addresses of EPRDM peers small numbers. Safe for concurrent
// use.
type AV interface {
	// Insert adds addresses and returns their numbers, in order. One that is there keeps its number.
	// All or none: ErrInvalid if one cannot be an address.
	Insert(addrs ...Addr) ([]AVAddr, error)

	// Remove forgets a number, ErrInvalid if it is not there. Ops on their way go on. The number may
	// be given to another.
	Remove(a AVAddr) error

	// Lookup is the address of a number, ErrInvalid if it is not there.
	Lookup(a AVAddr) (Addr, error)

	// Close frees the vector, or answers ErrBusy while an endpoint is bound.
	Close() error
}

// An AtomicQuerier is a Domain that has atomics.
type AtomicQuerier interface {
	// QueryAtomic is how many elements one op of this kind may have; ErrNoSys if the provider does not
	// have this op for this type, ErrInvalid if nobody has.
	QueryAtomic(kind OpKind, op AtomicOp, t DataType) (count int, err error)
}

// An MR is a registered local buffer.
type MR interface {
	// Desc goes into Seg.MR where the provider's MRMode has MRLocal.
	Desc() MRDesc

	// Raw is what a peer's Domain.Import takes. Do not change it.
	Raw() []byte

	// Close revokes the region: when it returns no peer can touch the buffer any more. It waits for
	// accesses that are under way, for a bounded time; a peer that does not let go is disconnected.
	Close() error
}

// A Prefetcher is an MR whose provider does something at the first op that needs the region, such
// as to have a NIC pin its memory, and can do it before.
type Prefetcher interface {
	// Prefetch does it now, which may take long: seconds for many GiB. ErrNotSupported if the provider
	// does nothing of that kind. Any other error is why no device takes the region; ops on it go
	// another way then, or fail, as they would without Prefetch.
	Prefetch() error
}

// A RemoteMR is a peer's region as ops name it.
type RemoteMR interface {
	// Key goes into RSeg.Key.
	Key() uint64

	// Base is added to an offset in the region to get RSeg.Addr.
	Base() uint64

	// Close forgets the region. Ops in flight are not disturbed.
	Close() error
}
