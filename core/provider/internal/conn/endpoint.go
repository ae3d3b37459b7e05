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
//	inbox       the receiving side of messages
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
	carries bool // recv is an EPRDM endpoint's, and ops may come before the connection
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

// Peer is the other end's address, empty before connected.
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

// Path says how payload moves to the peer; see fabric.Prober.
func (ep *Endpoint) Path() (name, reason string) {
	if ep.State.IsConnected() && ep.path != nil {
		return ep.path.Describe()
	}
	return "stream", ""
}

// Submit queues a prefix of ops; see fabric.Endpoint.
func (ep *Endpoint) Submit(ops []fabric.Op) (int, error) {
	if !ep.shutdown.Enter() {
		return 0, ep.endedErr()
	}
	defer ep.shutdown.Leave()
	var t todo
	n, err := 0, error(nil)
	for ; n < len(ops) && err == nil; n++ {
		if err = ep.submit(&ops[n], &t); err != nil {
			break
		}
	}
	ep.out.run(&t)
	return n, err
}

func (ep *Endpoint) endedErr() error {
	if err := ep.State.Submit(fabric.OpRecv); err != nil {
		return err
	}
	return fabric.ErrNotConn
}

// submit checks op, reserves room for its completion, and hands it to its queue.
func (ep *Endpoint) submit(op *fabric.Op, t *todo) error {
	if err := ep.mayTake(op.Kind); err != nil {
		return err
	}
	n, err := util.CheckOpLen(op, &ep.limits)
	if err != nil {
		return err
	}
	on, err := ep.domain.devices.OfOp(op, ep.domain.regions)
	if err != nil {
		return err
	}
	if op.Kind == fabric.OpRecv {
		if err = ep.recv.Post(op); err != nil && ep.shutdown.isEnded() {
			return ep.endedErr()
		}
		return err
	}
	if err := ep.Queues.Tx.Reserve(1); err != nil {
		return err
	}
	var key fabric.RegionKey
	var size uint64
	if op.Kind != fabric.OpSend {
		r := ep.domain.imports.Lookup(op.RSeg.Key)
		if r == nil {
			ep.Queues.Failed(op, fabric.ErrNoKey, fmt.Sprintf("handle %#x is not an imported region", op.RSeg.Key))
			return nil
		}
		key, size = r.Region, r.Size
	}
	return ep.out.add(op, n, key, size, on, t)
}

// Carry makes the endpoint serve an EPRDM endpoint; see rdm.Carrier.
func (ep *Endpoint) Carry(recv *receive.Queue, source func() fabric.AVAddr) {
	ep.out.mu.Lock()
	defer ep.out.mu.Unlock()
	ep.carries, ep.recv, ep.source = true, recv, source
}

// Abort ends a carrier that did not connect; see rdm.Carrier. It returns at once.
func (ep *Endpoint) Abort(cause error) { ep.fail(cause) }

// mayTake is nil if an op of this kind may be submitted now. The causes come bare.
func (ep *Endpoint) mayTake(kind fabric.OpKind) error {
	if !ep.carries {
		return ep.State.Submit(kind)
	}
	if kind == fabric.OpRecv {
		return fmt.Errorf("submit a receive to an endpoint that has none: %w", fabric.ErrInvalid)
	}
	return ep.State.SubmitEarly()
}

// from is the peer's number for completions.
func (ep *Endpoint) from() fabric.AVAddr {
	if ep.source == nil {
		return 0
	}
	return ep.source()
}
