// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// Connect connects to the listener at to; see fabric.Connector. If ctx has no deadline, Connect
// gives up after handshake.DefaultWait.
func (ep *Endpoint) Connect(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	a, err := ep.attempt(private)
	if err != nil {
		return nil, err
	}
	ctx, cancel := handshake.Bound(ctx, ep.shutdown.over, a.endedBy)
	defer cancel()
	h := frame.Handshake{Features: a.features(), Tx: a.tx(), Private: private}
	s, reply, err := handshake.Dial(ctx, ep.cfg.Transport, to, ep.cfg.Links, h)
	if err == nil {
		if err = a.prepare(s); err == nil {
			err = a.launch()
		}
	}
	if err != nil {
		a.fail(s)
		return nil, handshake.Error(ctx, to, err)
	}
	return reply, nil
}

// Accept accepts the request req; see fabric.Connector.
func (ep *Endpoint) Accept(ctx context.Context, req fabric.ConnReq, private []byte) error {
	r, ok := req.(*handshake.Request)
	if !ok {
		return fmt.Errorf("accept a request of another provider (%T): %w", req, fabric.ErrInvalid)
	}
	a, err := ep.attempt(private)
	if err != nil {
		return err
	}
	s, err := r.Take()
	if err != nil {
		a.fail(nil)
		return err
	}
	ctx, cancel := handshake.Bound(ctx, ep.shutdown.over, a.endedBy)
	defer cancel()
	if err = a.prepare(s); err == nil {
		err = s.Accept(ctx, frame.HandshakeReply{Features: a.features(), Tx: a.tx(), Private: private})
		if err != nil && ep.path != nil {
			ep.path.Close(err)
		}
	}
	if err == nil {
		err = a.launch()
	}
	if err != nil {
		a.fail(s)
		return handshake.Error(ctx, s.Peer, err)
	}
	return nil
}

// An attempt is one try to connect an endpoint: prepare, handshake and launch, or fail.
type attempt struct{ ep *Endpoint }

// attempt starts an attempt, if the endpoint is neither connected nor connecting.
func (ep *Endpoint) attempt(private []byte) (attempt, error) {
	if err := util.CheckPrivate(private, ep.limits.MaxPrivate); err != nil {
		return attempt{}, fmt.Errorf("connect: %w", err)
	}
	return attempt{ep}, ep.State.Connect()
}

// fail undoes the attempt. It closes the sockets, if any, and releases what Prelude returned,
// unless a DataPath took it.
func (a attempt) fail(s *handshake.Sockets) {
	if s != nil {
		s.Close()
		if a.ep.path == nil {
			handshake.Release(s.Extra)
		}
	}
	a.ep.State.ConnectFailed()
}

// endedBy returns why an endpoint ended before it was connected: it was closed, or its DataPath
// failed.
func (a attempt) endedBy() error {
	if !a.ep.shutdown.isEnded() || errors.Is(a.ep.State.Configure(), fabric.ErrClosed) {
		return fabric.ErrClosed
	}
	return a.ep.shutdown.cause
}

// features returns the features of this side.
func (a attempt) features() uint16 {
	if a.ep.domain.regions.TakesDevice() {
		return a.ep.cfg.can() | frame.FeatureDevice
	}
	return a.ep.cfg.can()
}

// tx returns how many ops of this side may be pending at the peer.
func (a attempt) tx() uint16 { return uint16(a.ep.limits.TxSize + staging.MaxPieces) }

// prepare makes the channels to the peer of s. It reads and sends nothing yet.
func (a attempt) prepare(s *handshake.Sockets) error {
	ep := a.ep
	ep.env = socket.Env{
		Peer: s.Peer, PeerTx: s.PeerTx, PeerFault: s.Features&frame.FeatureFault != 0,
		Ended: &ep.shutdown.ended, Over: ep.shutdown.over, Quit: ep.shutdown.quit, Space: ep.inbox.space,
	}
	var channels []*channel
	for i, conn := range s.Conns {
		c := newChannel(ep, i)
		var err error
		if c.Stream, err = socket.New(c, &ep.env, conn); err != nil {
			return err
		}
		if s.Features&frame.FeatureDecompress != 0 && ep.cfg.Compress != CompressNever {
			c.Compress(socket.NewCompressor(ep.cfg.compression(), conn))
		}
		channels = append(channels, c)
	}
	ep.out.mu.Lock()
	ep.channels.sockets, ep.peer, ep.peerFault = channels, s.Peer, ep.env.PeerFault
	if ep.peerDevice = s.Features&frame.FeatureDevice != 0; ep.peerDevice || ep.domain.regions.TakesDevice() {
		ep.out.pending.addPieces()
	}
	ep.out.mu.Unlock()
	if ep.cfg.Attach == nil {
		return nil
	}
	path, err := ep.cfg.Attach(Port{ep}, s.Extra)
	if err != nil {
		return err
	}
	ep.path = path
	ep.messages, _ = path.(MessagePath)
	return nil
}

// launch starts reading and sending frames. On an error it stops the DataPath.
func (a attempt) launch() error {
	ep := a.ep
	ep.out.mu.Lock()
	if ep.shutdown.isEnded() || !ep.State.Connected() {
		ep.out.mu.Unlock()
		err := a.endedBy()
		if ep.path != nil {
			ep.path.Close(err)
		}
		return err
	}
	ep.out.launched = true
	// Push this event before the readers can report anything.
	ep.Queues.EQ.Push(fabric.Event{Kind: fabric.EventConnected, EP: ep})
	for _, c := range ep.channels.sockets {
		c.Open() // before the readers start
	}
	if ep.path == nil {
		ep.poller = socket.Poll(ep.channels.sockets[0].Stream, ep.Queues.Tx, ep.Queues.Rx, &ep.shutdown)
	}
	for _, c := range ep.channels.sockets {
		c.start(c.readSocket)
	}
	var t todo
	ep.out.resume(&t)
	t.kick(ep.channels.sockets[0])
	final := ep.shutdown.final
	ep.out.mu.Unlock()
	if final != nil {
		ep.shutdown.begin(final.cause, true, final.frame)
	}
	if ep.shutdown.Enter() { // otherwise the connection has already ended, and teardown cleans up
		ep.out.run(&t)
		ep.shutdown.Leave()
	}
	return nil
}
