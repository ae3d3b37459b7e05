// SPDX-License-Identifier: MIT

package transport

import (
	"context"
	"crypto/subtle"
	"errors"
	"sync"
	"time"

	"mori/core/fabric"
	"mori/io/internal/arrivals"
	"mori/io/internal/identity"
	"mori/io/internal/message"
	"mori/io/internal/serial"
)

const (
	// maxConns limits the connections that peers may hold to one transport.
	maxConns = 4096

	admitWait  = 5 * time.Second       // wait for a slot; the peer's connection is being accepted
	acceptWait = 50 * time.Millisecond // after an error of the listener
)

// A Conn is a connection that a peer opened to this engine. The provider executes its transfers
// without the engine, which only sees notifications of arrivals. If the provider keeps
// notifications in shared memory, they stay there until a caller asks or the engine's clock drains
// them. So an arrival wakes nobody. Other providers' receivers record them at once, since a full
// queue would block the peer until the next drain.
type Conn struct {
	tr    *Transport
	peer  identity.ID
	token []byte // token that it was opened with
	ep    fabric.Endpoint
	cq    fabric.CQ
	in    *arrivals.Log

	reads   serial.Calls
	arrived [64]fabric.Completion // scratch of Drain
	closed  sync.Once
}

// OpenedWith reports whether the connection was opened with this token, in constant time.
func (c *Conn) OpenedWith(token []byte) bool { return subtle.ConstantTimeCompare(c.token, token) == 1 }

// Drain records the notifications that have arrived. If calls overlap, one of them does the work.
// That includes a call that a provider makes from within Read.
func (c *Conn) Drain() {
	c.reads.Do(func() {
		for {
			n, err := c.cq.Read(c.arrived[:])
			c.book(c.arrived[:n])
			if errors.Is(err, fabric.ErrAvail) {
				var e fabric.ErrEntry
				for c.cq.ReadErr(&e) == nil {
				}
			} else if n == 0 {
				return
			}
		}
	})
}

func (c *Conn) book(done []fabric.Completion) {
	for _, d := range done {
		if d.Kind == fabric.OpRemoteWrite {
			c.in.Add(d.Data)
		}
	}
}

// Close ends the connection. When it returns, in any goroutine, the connection can write no more
// bytes. Recorded arrivals are kept.
func (c *Conn) Close() {
	c.closed.Do(func() {
		c.tr.Forget(c.ep)
		c.Drain() // the provider discards unread notifications when the endpoint closes
		_ = c.ep.Close()
		c.Drain()
		_ = c.cq.Close()
		c.tr.remove(c)
		c.in.Unwatch(c)
	})
}

// accept admits peers that hold a token of the engine's control plane.
func (t *Transport) accept(ctx context.Context) {
	defer t.wg.Done()
	for {
		req, err := t.lis.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, fabric.ErrClosed) {
				return
			}
			t.config.Log.Warn("accept", "transport", t.name, "error", err)
			select {
			case <-time.After(acceptWait):
			case <-ctx.Done():
				return
			}
			continue
		}
		t.wg.Add(1)
		go func() {
			defer t.wg.Done()
			t.admit(ctx, req)
		}()
	}
}

// admit turns a request into a Conn, or refuses it and logs the reason.
func (t *Transport) admit(ctx context.Context, req fabric.ConnReq) {
	refuse := func(reason string) {
		t.config.Log.Warn("connection refused", "transport", t.name, "from", req.Peer(), "reason", reason)
		_ = req.Reject([]byte(reason))
	}
	peer, ok := t.config.Server.Redeem(req.Private(), t.name)
	switch {
	case !ok:
		refuse("unknown, used or expired token, or no proof for it: complete the control-plane handshake first")
		return
	case len(t.Conns()) >= maxConns:
		refuse("too many connections")
		return
	}
	c := &Conn{tr: t, peer: peer, token: req.Private()[:message.TokenLen], in: t.config.Arrivals.Of(peer)}
	var err error
	if c.ep, c.cq, err = t.Endpoint(func(error) { c.Close() }); err != nil {
		refuse(err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, admitWait)
	defer cancel()
	c.cq.OnReady(c.Drain)
	c.in.Watch(c)
	if !t.add(c) {
		_ = req.Reject([]byte("engine is closing"))
		c.Close()
		return
	}
	if !t.config.Server.Holds(req.Private()) { // the token was dropped before c was in the list
		_ = req.Reject([]byte("token was dropped"))
		c.Close()
		return
	}
	if err := c.ep.(fabric.Connector).Accept(ctx, req, nil); err != nil {
		t.config.Log.Warn("connection refused", "transport", t.name, "from", req.Peer(), "reason", err)
		c.Close()
	}
}

// add reports false once the transport is closing.
func (t *Transport) add(c *Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closing {
		t.conns[c] = struct{}{}
	}
	return !t.closing
}

func (t *Transport) remove(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Conns returns the connections that peers have opened to the transport.
func (t *Transport) Conns() []*Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*Conn, 0, len(t.conns))
	for c := range t.conns {
		out = append(out, c)
	}
	return out
}

// Disconnect closes the connections of all engines for which gone is true, concurrently. When it
// returns, these connections can write no more bytes.
func Disconnect(all []*Transport, gone func(identity.ID) bool) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, t := range all {
		for _, c := range t.Conns() {
			if !gone(c.peer) {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				c.Close()
			}()
		}
	}
}
