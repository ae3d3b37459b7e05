// SPDX-License-Identifier: MIT

package conn

import (
	"context"
	"errors"
	"fmt"

	"mori/core/fabric"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/handshake"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// Connect asks the listener at to; see fabric.Connector. Without a deadline in ctx it gives up
// after 5 seconds.
func (ep *Endpoint) Connect(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	if err := ep.beginConnect(private); err != nil {
		return nil, err
	}
	ctx, cancel := handshake.Bound(ctx, ep.shutdown.over, ep.endedEarly)
	defer cancel()
	h := frame.Handshake{Features: ep.can(), Tx: ep.tx(), Private: private}
	s, reply, err := handshake.Dial(ctx, ep.cfg.Transport, to, ep.cfg.Links, h)
	if err == nil {
		if err = ep.prepare(s); err == nil {
			err = ep.launch()
		}
		if err != nil {
			ep.discard(s)
		}
	}
	if err != nil {
		ep.state.ConnectFailed()
		return nil, handshake.Error(ctx, to, err)
	}
	return reply, nil
}

func (ep *Endpoint) beginConnect(private []byte) error {
	if most := ep.limits.MaxPrivate; len(private) > most {
		return fmt.Errorf("connect with %d bytes of private data, limit is %d: %w", len(private), most, fabric.ErrTooSmall)
	}
	return ep.state.Connect()
}

// endedEarly is why an endpoint ended before it was connected: it was closed, or its DataPath
// failed.
func (ep *Endpoint) endedEarly() error {
	if !ep.shutdown.isEnded() || errors.Is(ep.state.Configure(), fabric.ErrClosed) {
		return fabric.ErrClosed
	}
	return ep.shutdown.cause
}

// discard closes the sockets of an attempt that failed. It releases what Prelude returned, unless a
// DataPath took it.
func (ep *Endpoint) discard(s *handshake.Sockets) {
	s.Close()
	if ep.path == nil {
		handshake.Release(s.Extra)
	}
}

// Accept answers req; see fabric.Connector.
func (ep *Endpoint) Accept(ctx context.Context, req fabric.ConnReq, private []byte) error {
	r, ok := req.(*handshake.Request)
	if !ok {
		return fmt.Errorf("accept a request of another kind (%T): %w", req, fabric.ErrInvalid)
	}
	if err := ep.beginConnect(private); err != nil {
		return err
	}
	s, err := r.Take()
	if err != nil {
		ep.state.ConnectFailed()
		return err
	}
	ctx, cancel := handshake.Bound(ctx, ep.shutdown.over, ep.endedEarly)
	defer cancel()
	if err = ep.prepare(s); err == nil {
		err = s.Accept(ctx, frame.HandshakeReply{Features: ep.can(), Tx: ep.tx(), Private: private})
		if err != nil && ep.path != nil {
			ep.path.Close(err)
		}
	}
	if err == nil {
		err = ep.launch()
	}
	if err != nil {
		ep.discard(s)
		ep.state.ConnectFailed()
		return handshake.Error(ctx, s.Peer, err)
	}
	return nil
}

// can returns the features of this side.
func (ep *Endpoint) can() uint16 {
	if ep.domain.regions.TakesDevice() {
		return ep.cfg.can() | frame.FeatureDevice
	}
	return ep.cfg.can()
}

// tx is how many ops the peer may see under way.
func (ep *Endpoint) tx() uint16 { return uint16(ep.limits.TxSize + staging.MaxPieces) }

// prepare makes the channels to the peer of s. Nothing is read or sent yet.
func (ep *Endpoint) prepare(s *handshake.Sockets) error {
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
	ep.mu.Lock()
	ep.channels, ep.peer, ep.peerFault = channels, s.Peer, ep.env.PeerFault
	if ep.peerDevice = s.Features&frame.FeatureDevice != 0; ep.peerDevice || ep.domain.regions.TakesDevice() {
		ep.pending.addPieces()
	}
	ep.mu.Unlock()
	if ep.cfg.Attach == nil {
		return nil
	}
	path, err := ep.cfg.Attach(ep, s.Extra)
	if err != nil {
		return err
	}
	ep.path = path
	ep.messages, _ = path.(MessagePath)
	return nil
}

// launch lets frames flow. On an error the DataPath is stopped.
func (ep *Endpoint) launch() error {
	ep.mu.Lock()
	if ep.shutdown.isEnded() || !ep.state.Connected() {
		ep.mu.Unlock()
		err := ep.endedEarly()
		if ep.path != nil {
			ep.path.Close(err)
		}
		return err
	}
	ep.launched = true
	// The event comes before anything that the readers report.
	ep.queues.EQ.Push(fabric.Event{Kind: fabric.EventConnected, EP: ep})
	for _, c := range ep.channels {
		c.Open() // before anybody reads
	}
	if ep.path == nil {
		ep.poller = socket.Poll(ep.channels[0].Stream, ep.queues.Tx, ep.queues.Rx, &ep.shutdown)
	}
	for _, c := range ep.channels {
		c.start(c.readSocket)
	}
	var t todo
	ep.resume(&t)
	t.kick(ep.channels[0])
	final := ep.shutdown.final
	ep.mu.Unlock()
	if final != nil {
		ep.end(final.cause, true, final.frame)
	}
	if ep.shutdown.Enter() { // else the connection has ended already, and its end belongs to teardown
		ep.run(&t)
		ep.shutdown.Leave()
	}
	return nil
}
