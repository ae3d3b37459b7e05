// SPDX-License-Identifier: MIT

//go:build ofi

package ofi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
	lf "mori/native/libfabric"
)

// A connected is an EPMsg endpoint, which is also a fabric.Connector.
type connected struct {
	*endpoint
	setup sync.Mutex    // held by Connect, Accept and Close
	news  chan lf.Event // the result of connecting; holds one element
	peer  fabric.Addr   // under endpoint.mu
	to    fabric.Addr   // peer, once connected
}

var (
	_ fabric.Connector = (*connected)(nil)
	_ fabric.Prober    = (*connected)(nil)
	_ taker            = (*connected)(nil)
)

// Connect requests a connection from the listener at to; see fabric.Connector. If it fails, the
// endpoint may try again.
func (c *connected) Connect(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	if err := c.State.Connect(); err != nil {
		return nil, err
	}
	c.setup.Lock()
	defer c.setup.Unlock()
	reply, err := c.ask(ctx, to, private)
	if err != nil {
		c.abandon()
		return nil, err
	}
	return reply, nil
}

func (c *connected) ask(ctx context.Context, to fabric.Addr, private []byte) ([]byte, error) {
	d := c.domain
	if err := util.CheckPrivate(private, d.offer.info.Limits.MaxPrivate); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	addr, err := addrBytes(d.offer.fi.AddrFormat, to)
	if err != nil {
		return nil, err
	}
	err = c.begin(d.offer.id, to, func() error { return c.ops.fid.Connect(addr, private) })
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, cause(err))
	}
	ev, err := c.await(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	case fabric.Errno(ev.Err) == fabric.ErrConnRefused:
		return nil, &fabric.RejectError{Peer: to, Data: ev.Data}
	case ev.Err != 0:
		return nil, fmt.Errorf("connect to %s: %w", to, receiveCause(fabric.Errno(ev.Err)))
	}
	return ev.Data, nil
}

// begin opens the libfabric endpoint of info and starts to connect it.
func (c *connected) begin(info lf.FID, to fabric.Addr, start func() error) error {
	g := c.domain.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	select {
	case <-c.news: // of an earlier attempt
	default:
	}
	c.to = to
	if err := c.open(info); err != nil {
		return err
	}
	g.takers[c.ops.fid] = c
	defer g.kick()
	return start()
}

// await waits for the result of connecting.
func (c *connected) await(ctx context.Context) (lf.Event, error) {
	select {
	case ev := <-c.news:
		return ev, nil
	case <-c.closing:
		return lf.Event{}, fabric.ErrClosed
	case <-ctx.Done():
		return lf.Event{}, ctx.Err()
	}
}

// abandon returns to enabled after a failed attempt, unless it has succeeded after all.
func (c *connected) abandon() {
	g := c.domain.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	if c.State.IsConnected() {
		c.lost(fabric.ErrConnAborted, "connected too late")
		return
	}
	c.mu.Lock()
	c.discard()
	c.mu.Unlock()
	c.State.ConnectFailed()
}

// Accept answers req; see fabric.Connector.
func (c *connected) Accept(ctx context.Context, req fabric.ConnReq, private []byte) error {
	r, ok := req.(*request)
	if !ok {
		return fmt.Errorf("accept a request of another provider (%T): %w", req, fabric.ErrInvalid)
	}
	if err := util.CheckPrivate(private, c.domain.offer.info.Limits.MaxPrivate); err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	if err := c.State.Connect(); err != nil {
		return err
	}
	c.setup.Lock()
	defer c.setup.Unlock()
	if isClosed(c.closing) {
		return fabric.ErrClosed
	}
	if !r.claim() {
		c.State.ConnectFailed()
		return fmt.Errorf("accept a request that is over: %w", fabric.ErrConnAborted)
	}
	defer r.done()
	err := c.begin(r.info, r.peer, func() error { return c.ops.fid.Accept(private) })
	var ev lf.Event
	if err == nil {
		ev, err = c.await(ctx)
	}
	if err == nil && ev.Err != 0 {
		err = receiveCause(fabric.Errno(ev.Err))
	}
	if err != nil {
		c.abandon()
		return fmt.Errorf("accept from %s: %w", r.peer, cause(err))
	}
	return nil
}

// event handles a libfabric event of the connection. The caller holds engine.polling.
func (c *connected) event(ev lf.Event) {
	switch {
	case ev.Err == 0 && ev.Kind == lf.Connected && c.State.Connected():
		c.mu.Lock()
		c.peer = c.to
		c.mu.Unlock()
		c.Queues.EQ.Push(fabric.Event{Kind: fabric.EventConnected, EP: c})
		c.report(ev)
	case c.State.IsConnected():
		errno := fabric.ErrShutdown
		if ev.Err != 0 {
			errno = receiveCause(fabric.Errno(ev.Err))
		}
		c.lost(errno, "")
	default:
		if ev.Err == 0 {
			ev.Err = int32(fabric.ErrConnReset)
		}
		c.report(ev)
	}
}

func (c *connected) report(ev lf.Event) {
	ev.Data = slices.Clip(ev.Data)
	select {
	case c.news <- ev:
	default:
	}
}

// lost ends a connection: it ends the ops first, then reports the event. The caller holds
// engine.polling.
func (c *connected) lost(errno fabric.Errno, detail string) {
	ops := errno
	if errno == fabric.ErrShutdown {
		ops = fabric.ErrConnReset
	}
	if detail == "" {
		detail = fmt.Sprintf("connection to %s ended", c.Peer())
	}
	first := false
	c.shut(ops, detail, func() { first = c.State.Shut() })
	if first {
		c.Queues.EQ.Push(fabric.Event{Kind: fabric.EventShutdown, EP: c, Err: fmt.Errorf("%s: %w", detail, errno)})
	}
}

// Peer returns the address of the listener or of the requesting peer.
func (c *connected) Peer() fabric.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

// Shutdown ends the connection in order; see fabric.Connector.
func (c *connected) Shutdown() error {
	g := c.domain.network.engine
	g.polling.Lock()
	defer g.polling.Unlock()
	switch {
	case isClosed(c.closing):
		return fabric.ErrClosed
	case c.Peer() == "":
		return fmt.Errorf("shut down an endpoint that is %v: %w", &c.State, fabric.ErrNotConn)
	case c.State.IsConnected():
		g.drain(c.queue)
		_ = c.ops.fid.Shutdown()
		c.lost(fabric.ErrConnAborted, "")
	}
	return nil
}

func (c *connected) Close() error {
	c.closeOnce.Do(func() {
		close(c.closing)
		c.setup.Lock()
		defer c.setup.Unlock()
		c.close()
	})
	return nil
}
