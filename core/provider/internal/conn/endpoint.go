// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
	"mori/core/provider/internal/queue"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// An Endpoint is one end of a connection over one or more sockets.
//
// What happens to an op:
//
//  1. Submit (submit.go) checks it and makes it a pendingOp.
//  2. issue (issue.go) takes the credit that it needs and posts a job on a channel.
//  3. The channel's stream sends the frame, on the submitter's goroutine while that is quick.
//  4. The peer's channel (inbound.go, messages.go, atomic.go) moves the bytes and posts an answer.
//  5. Our channel takes the answer and completes the op.
//
// shutdown.go ends it all.
type Endpoint struct {
	domain   *Domain
	cfg      *Config
	limits   fabric.Limits
	state    util.State
	queues   util.Queues
	recv     *util.RecvQueue // from Enable on, or from Carry
	feed     *util.Feed      // into recv, from Enable on
	shutdown shutdown

	// Set by Carry.
	carries bool // recv is an EPRDM endpoint's, and ops may come before the connection
	source  func() fabric.AVAddr

	// Set when the connection is made and constant from then on.
	peer     fabric.Addr
	env      socket.Env
	channels []*channel
	path     DataPath                // may be nil
	messages MessagePath             // path, if it is one
	wire     atomic.Pointer[channel] // beside channels, once the DataPath has one; see wire.go

	peerDevice bool // the peer's regions may be device memory
	peerFault  bool // the peer takes frames with flagTrailer and flagVoid

	mu       sync.Mutex // protects what follows; taken before the locks of package socket
	pending  pendingOps
	inFlight int                    // issued and not ended
	fenced   queue.FIFO[*pendingOp] // behind an OpFence or before the connection: not issued
	reads    queue.FIFO[*pendingOp] // issued, waiting for read credit
	sends    queue.FIFO[*pendingOp] // issued, waiting for message credit or for an offer's body
	offer    *pendingOp             // offered, the body is not queued yet
	handing  queue.FIFO[*pendingOp] // issued, not yet the DataPath's: messages if it wants them
	handed   bool                   // somebody is giving them to it
	sent     uint64                 // cost of all eager messages sent
	consumed uint64                 // as much of it as the peer says is consumed
	launched bool                   // the connection was made
	turned   bool                   // messages go by the wire
	unspace  func()                 // undoes util.CQ.OnSpace

	stage  staging.Stager
	inbox  inbox
	poller *socket.Poller // may be nil
	extra  atomic.Int64   // bytes of extension frames queued
}

var (
	_ fabric.Endpoint  = (*Endpoint)(nil)
	_ fabric.Connector = (*Endpoint)(nil)
	_ fabric.Prober    = (*Endpoint)(nil)
	_ rdm.Carrier      = (*Endpoint)(nil)
)

func newEndpoint(d *Domain) *Endpoint {
	ep := &Endpoint{domain: d, cfg: &d.fabric.cfg, limits: d.fabric.cfg.Info.Limits}
	ep.shutdown.init()
	ep.stage.Init(stagingPort{ep}, d.regions)
	return ep
}

// BindCQ sends the completions of dir to cq; see fabric.Endpoint.
func (ep *Endpoint) BindCQ(cq fabric.CQ, dir fabric.Dir, selective bool) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.state.Configure(); err != nil {
		return err
	}
	return ep.queues.BindCQ(cq, dir, selective)
}

// BindEQ sends connection events to eq; see fabric.Endpoint.
func (ep *Endpoint) BindEQ(eq fabric.EQ) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.state.Configure(); err != nil {
		return err
	}
	return ep.queues.BindEQ(eq)
}

// BindCounter makes c count events; see fabric.Endpoint.
func (ep *Endpoint) BindCounter(c fabric.Counter, events fabric.CountEvents) error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.state.Configure(); err != nil {
		return err
	}
	return ep.queues.BindCounter(c, events)
}

// BindAV refuses: a connected endpoint has one peer.
func (ep *Endpoint) BindAV(fabric.AV) error {
	return fmt.Errorf("bind an address vector to a connected endpoint: %w", fabric.ErrInvalid)
}

// Name refuses: only listeners have addresses.
func (ep *Endpoint) Name() (fabric.Addr, error) {
	return "", fmt.Errorf("name of a connected endpoint: %w", fabric.ErrNoSys)
}

// Enable ends configuration; see fabric.Endpoint.
func (ep *Endpoint) Enable() error {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if err := ep.state.Configure(); err != nil {
		return err
	}
	if err := ep.queues.Complete(); err != nil {
		return err
	}
	ep.pending = newPendingOps(ep.limits.TxSize)
	if !ep.carries {
		ep.recv = util.NewRecvQueue(&ep.queues, ep.limits.RxSize)
	}
	ep.feed = ep.recv.Feed(util.FeedConfig{Room: eagerRoom, Source: ep.source, Changed: ep.receivesChanged, Placed: ep.placed})
	ep.inbox.init()
	ep.unspace = ep.queues.Rx.OnSpace(ep.inbox.wake)
	return ep.state.Enable()
}

// Cancel ends a pending receive; see fabric.Endpoint.
func (ep *Endpoint) Cancel(ctx uint64) error {
	switch err := ep.state.Submit(fabric.OpRecv); err {
	case fabric.ErrOpBadState, fabric.ErrClosed:
		return fmt.Errorf("cancel on endpoint that is %v: %w", &ep.state, err)
	}
	if ep.carries {
		return fmt.Errorf("cancel receives of an endpoint that has none of its own: %w", fabric.ErrInvalid)
	}
	ep.recv.Cancel(ctx)
	return nil
}

// Peer is the other end's address, empty before connected.
func (ep *Endpoint) Peer() fabric.Addr {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if !ep.launched {
		return ""
	}
	return ep.peer
}

func (ep *Endpoint) running() bool {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	return ep.launched && ep.state.Submit(fabric.OpRecv) != fabric.ErrClosed
}

// Describe says how payload moves to the peer; see fabric.Prober.
func (ep *Endpoint) Path() (name, reason string) {
	if ep.state.IsConnected() && ep.path != nil {
		return ep.path.Describe()
	}
	return "stream", ""
}

// RecvCQ is the queue of OpRemoteWrite completions.
func (ep *Endpoint) RecvCQ() *util.CQ { return ep.queues.Rx }

// Feed gives messages of this connection to receives, from Enable on.
func (ep *Endpoint) Feed() *util.Feed { return ep.feed }

// Domain is the endpoint's domain.
func (ep *Endpoint) Domain() *Domain { return ep.domain }

// SendCQ is the queue of completions of ops that are not receives.
func (ep *Endpoint) SendCQ() *util.CQ { return ep.queues.Tx }

// Source is the peer's number for completions.
func (ep *Endpoint) Source() fabric.AVAddr { return ep.from() }

// Carry makes the endpoint serve an EPRDM endpoint; see rdm.Carrier.
func (ep *Endpoint) Carry(recv *util.RecvQueue, source func() fabric.AVAddr) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	ep.carries, ep.recv, ep.source = true, recv, source
}

// Abort ends a carrier that did not connect; see rdm.Carrier. It returns at once.
func (ep *Endpoint) Abort(cause error) { ep.end(cause, false) }

// mayTake is nil if an op of this kind may be submitted now. The causes come bare.
func (ep *Endpoint) mayTake(kind fabric.OpKind) error {
	if !ep.carries {
		return ep.state.Submit(kind)
	}
	if kind == fabric.OpRecv {
		return fmt.Errorf("submit a receive to an endpoint that has none of its own: %w", fabric.ErrInvalid)
	}
	return ep.state.SubmitEarly()
}

// from is the peer's number for completions.
func (ep *Endpoint) from() fabric.AVAddr {
	if ep.source == nil {
		return 0
	}
	return ep.source()
}
