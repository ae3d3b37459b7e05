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

	// Listen starts to accept connections at in.Src, or at an address of the provider's choice if empty.
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
	// Endpoint makes an unconnected endpoint in state idle.
	Endpoint(in *Info) (Endpoint, error)

	// CQ opens a completion queue that holds at least size entries.
	CQ(size int) (CQ, error)

	// Reg registers a buffer for the rights in access. The buffer stays the caller's, who keeps it alive
	// until MR.Close returned.
	Reg(buf Buffer, access Access, key RegionKey) (MR, error)

	// Import makes a peer's region usable as RSeg.Key of ops of this domain. It sends nothing: a wrong
	// key shows when it is used.
	Import(raw []byte) (RemoteMR, error)

	// Close frees the domain, or answers ErrBusy.
	Close() error
}

// An Endpoint moves bytes to and from one peer.
//
//	idle ──BindCQ,BindEQ──▶ idle ──Enable──▶ enabled ──Connect,Accept──▶ connected ──▶ shut ──Close──▶ closed
//	                                                        (Shutdown, the peer's, or a broken connection)
//
// Submit before Enable is ErrOpBadState; receives may be posted from enabled on, everything else needs
// connected (ErrNotConn). When the connection ends, every op in flight ends with an error entry before the
// EQ tells.
type Endpoint interface {
	// BindCQ sends the completions of dir to cq. With selective, successes are reported only for ops with
	// OpWantCQE. Only in state idle; each direction once.
	BindCQ(cq CQ, dir Dir, selective bool) error

	// BindEQ sends connection events to eq. Only in state idle.
	BindEQ(eq EQ) error

	// Enable ends configuration. ErrNoCQ without a CQ for both directions.
	Enable() error

	// Submit queues a prefix of ops in order, says how many, and does not wait for the network. The error
	// tells why ops[n] was not taken: ErrAgain is a full queue. Safe for concurrent use.
	Submit(ops []Op) (n int, err error)

	// Cancel ends a pending receive with this Ctx by an ErrCanceled entry. Unknown or done: nothing.
	Cancel(ctx uint64) error

	// Close ends the connection, ends every op with an error entry, and waits until no byte of any of
	// them can still land on this side.
	Close() error
}

// A Connector is an Endpoint that connects (type EPMsg).
type Connector interface {
	// Connect asks the listener at to for a connection and returns its private data. A RejectError if it refused.
	Connect(ctx context.Context, to Addr, private []byte) (reply []byte, err error)

	// Accept answers req, taking it over, and hands private data to the peer.
	Accept(ctx context.Context, req ConnReq, private []byte) error

	// Shutdown ends the connection in good order: ops in flight end with ErrConnAborted before it returns, the
	// peer sees ErrShutdown. Completions stay readable.
	Shutdown() error

	// Peer is the other end's address, empty before connected.
	Peer() Addr
}

// A Prober tells, before or after connecting, why a provider is or is not at its best with its peer.
type Prober interface {
	// Path says in words how bytes move to this peer: "cma", "stream".
	Path() (name, reason string)
}

// A CQ receives completions. Safe for concurrent use; each entry is delivered once.
type CQ interface {
	// Read fills dst without blocking. ErrAgain if there is nothing; ErrAvail, after the successes that
	// came before it, if the next entry is an error and waits in ReadErr.
	Read(dst []Completion) (int, error)

	// Wait is Read that parks until there is something, ctx is done (its error), Signal was called
	// (0, nil), or the queue closed (ErrClosed).
	Wait(ctx context.Context, dst []Completion) (int, error)

	// ReadErr pops the next error entry, or answers ErrAgain.
	ReadErr(e *ErrEntry) error

	// Signal wakes one Wait, now or the next to come.
	Signal() error

	// OnReady makes the queue call fn, once for now if it is not empty, and after every entry that is added, by
	// whoever adds it: possibly inside Submit, and possibly with locks of the provider held. fn must not block
	// and may call Read and ReadErr only. It saves the hand-over to a goroutine in Wait. nil ends that; a call
	// under way may still be running.
	OnReady(fn func())

	// Close frees the queue, or answers ErrBusy while an endpoint is bound.
	Close() error
}

// An EQ receives connection events. Safe for concurrent use.
type EQ interface {
	// Read pops an event without blocking, or answers ErrAgain.
	Read() (Event, error)

	// Wait is Read that parks until there is an event, ctx is done, or the queue closed (ErrClosed).
	Wait(ctx context.Context) (Event, error)

	// Close frees the queue, or answers ErrBusy while an endpoint is bound.
	Close() error
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

// A RemoteMR is a peer's region as ops name it.
type RemoteMR interface {
	// Key goes into RSeg.Key.
	Key() uint64

	// Base is added to an offset in the region to get RSeg.Addr.
	Base() uint64

	// Close forgets the region. Ops in flight are not disturbed.
	Close() error
}
