// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/layer/rdm"
	"mori/core/fabric/util"
	"mori/core/fabric/util/receive"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// An Endpoint is one end of a connection over one or more streams. Its parts own their state:
//
//	outbound    our ops, from Submit to their completion
//	channels    one for each stream: it executes the peer's ops, and takes the answers to ours
//	channels    one for each stream: executes the peer's ops and handles the answers to ours
//	Stager      device memory, in pieces
//	shutdown    how the connection ends
//	Port        the Endpoint as its DataPath sees it
type Endpoint struct {
	util.MsgBase
	domain   *Domain
	cfg      *Config
	limits   fabric.Limits
	recv     *receive.Queue // from Enable on, or from Carry
	feed     *receive.Feed  // into recv, from Enable on
	unspace  func()         // undoes util.CQ.OnSpace; from Enable on
	shutdown shutdown

	// Set by Carry.
	carries bool // recv is an EPRDM endpoint's, and ops may be submitted before connecting
	source  func() fabric.AVAddr

	// Set when the connection is made and constant from then on.
	peer       fabric.Addr
	env        socket.Env
	path       DataPath    // may be nil
	messages   MessagePath // path, if it is one
	peerDevice bool        // the peer's regions may be device memory
	peerFault  bool        // the peer takes frames with flagTrailer and flagVoid

	channels   channels
	out        outbound
	inbox      inbox
	stage      staging.Stager
	poller     *socket.Poller // may be nil
	extensions extensions
	goodbyes   goodbyes
}

var (
	_ fabric.Endpoint  = (*Endpoint)(nil)
	_ fabric.Connector = (*Endpoint)(nil)
	_ fabric.Prober    = (*Endpoint)(nil)
	_ rdm.Carrier      = (*Endpoint)(nil)
)

func newEndpoint(d *Domain) *Endpoint {
	ep := &Endpoint{domain: d, cfg: &d.fabric.cfg, limits: d.fabric.cfg.Info.Limits}
	ep.shutdown.init(ep)
	ep.out.ep, ep.inbox.ep = ep, ep
	ep.stage.Init(stagingPort{ep}, d.regions)
	return ep
}

// Enable ends configuration; see fabric.Endpoint.
func (ep *Endpoint) Enable() error {
	return ep.EnableWith(func() error {
		ep.out.mu.Lock()
		defer ep.out.mu.Unlock()
		ep.out.pending = newPendingOps(ep.limits.TxSize)
		if !ep.carries {
			ep.recv = receive.NewQueue(&ep.Queues, ep.limits.RxSize)
		}
		ep.feed = ep.recv.Feed(receive.FeedConfig{
			Room: eagerRoom, Source: ep.source, Changed: ep.inbox.changed, Placed: ep.inbox.placed,
		})
		ep.inbox.init()
		ep.unspace = ep.Queues.Rx.OnSpace(ep.inbox.wake)
		return nil
	})
}

// Cancel ends a pending receive; see fabric.Endpoint.
func (ep *Endpoint) Cancel(ctx uint64) error {
	switch err := ep.State.Submit(fabric.OpRecv); err {
	case fabric.ErrOpBadState, fabric.ErrClosed:
		return fmt.Errorf("cancel on endpoint that is %v: %w", &ep.State, err)
	}
	if ep.carries {
		return fmt.Errorf("cancel receives of an endpoint that has none: %w", fabric.ErrInvalid)
	}
	ep.recv.Cancel(ctx)
	return nil
}

// Peer returns the peer's address, or "" before the endpoint is connected.
func (ep *Endpoint) Peer() fabric.Addr {
	ep.out.mu.Lock()
	defer ep.out.mu.Unlock()
	if !ep.out.launched {
		return ""
	}
	return ep.peer
}

func (ep *Endpoint) running() bool {
	ep.out.mu.Lock()
	defer ep.out.mu.Unlock()
	return ep.out.launched && ep.State.Submit(fabric.OpRecv) != fabric.ErrClosed
}

// Path returns how payload moves to the peer; see fabric.Prober.
func (ep *Endpoint) Path() (name, reason string) {
	if ep.State.IsConnected() && ep.path != nil {
		return ep.path.Describe()
	}
	return "stream", ""
}

// Carry makes this endpoint a carrier of an EPRDM endpoint; see rdm.Carrier.
func (ep *Endpoint) Carry(recv *receive.Queue, source func() fabric.AVAddr) {
	ep.out.mu.Lock()
	defer ep.out.mu.Unlock()
	ep.carries, ep.recv, ep.source = true, recv, source
}

// Abort ends a carrier that did not connect; see rdm.Carrier. It does not block.
func (ep *Endpoint) Abort(cause error) { ep.fail(cause) }

// from returns the peer's address number for completions.
func (ep *Endpoint) from() fabric.AVAddr {
	if ep.source == nil {
		return 0
	}
	return ep.source()
}
