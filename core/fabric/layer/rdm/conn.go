// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"fmt"
	"sync/atomic"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A conn is a carrier and whom it goes to.
type conn struct {
	carrier  Carrier
	peer     fabric.Addr
	gone     chan struct{} // closed when the carrier is closed, and so all its ops have ended
	retiring bool          // under Endpoint.mu
}

// route is the conn for ops to peer, whose number is dest. It makes one if there is only
// ended, which refused op, or nothing.
func (e *Endpoint) route(dest fabric.AVAddr, peer fabric.Addr, op *fabric.Op, ended *conn) (*conn, error) {
	if err := util.CheckOp(op, &e.cfg.Limits); err != nil {
		return nil, err // nobody is dialed for that
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fabric.ErrClosed
	}
	c := e.byName[peer]
	if c == nil || c == ended {
		var after <-chan struct{}
		if c != nil {
			after = c.gone
			e.drop(c)
		}
		var err error
		if c, err = e.open(peer); err != nil {
			return nil, fmt.Errorf("reach %s: %w", peer, err)
		}
		e.byName[peer] = c
		e.spawnLocked(func() { e.dial(c, after) })
	}
	e.routes.set(dest, c)
	return c, nil
}

// open makes an enabled carrier. With mu held.
func (e *Endpoint) open(peer fabric.Addr) (*conn, error) {
	carrier, err := e.cfg.Carrier()
	if err != nil {
		return nil, err
	}
	carrier.Carry(e.recv, func() fabric.AVAddr { return e.av.Find(peer) })
	if err := e.ready(carrier); err != nil {
		_ = carrier.Close()
		return nil, err
	}
	c := &conn{carrier: carrier, peer: peer, gone: make(chan struct{})}
	e.conns[carrier] = c
	return c, nil
}

// ready binds a carrier to what the endpoint is bound to, and enables it.
func (e *Endpoint) ready(carrier Carrier) error {
	q := &e.queues
	if err := carrier.BindCQ(q.Tx, fabric.DirTransmit, q.TxSelective); err != nil {
		return err
	}
	if err := carrier.BindCQ(q.Rx, fabric.DirRecv, q.RxSelective); err != nil {
		return err
	}
	for _, b := range e.counters {
		if err := carrier.BindCounter(b.counter, b.events); err != nil {
			return err
		}
	}
	if err := carrier.BindEQ(e.events); err != nil {
		return err
	}
	return carrier.Enable()
}

// dial connects c once everything of the conn before it has ended, or ends the ops that wait in it.
func (e *Endpoint) dial(c *conn, after <-chan struct{}) {
	ctx, cancel := context.WithTimeout(e.ctx, e.cfg.DialTimeout)
	defer cancel()
	if err := e.connect(ctx, c, after); err != nil {
		c.carrier.Abort(e.whyNot(ctx, c.peer, err))
		e.mu.Lock()
		e.drop(c)
		e.mu.Unlock()
	}
}

func (e *Endpoint) connect(ctx context.Context, c *conn, after <-chan struct{}) error {
	if after != nil {
		select {
		case <-after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := c.carrier.Connect(ctx, c.peer, e.hello)
	return err
}

// whyNot is the error of ops that wait for a connection to peer.
func (e *Endpoint) whyNot(ctx context.Context, peer fabric.Addr, err error) error {
	switch {
	case e.ctx.Err() != nil:
		return fmt.Errorf("reach %s: endpoint closed: %w", peer, fabric.ErrCanceled)
	case ctx.Err() != nil:
		return fmt.Errorf("reach %s: no answer within %v: %w", peer, e.cfg.DialTimeout, fabric.ErrTimeout)
	}
	return fmt.Errorf("reach %s: %w", peer, err)
}

// watch retires the carriers whose connection ended.
func (e *Endpoint) watch() {
	for {
		event, err := e.events.Wait(e.ctx)
		if err != nil {
			return
		}
		if event.Kind != fabric.EventShutdown {
			continue
		}
		e.mu.Lock()
		if c := e.conns[event.EP]; c != nil {
			e.drop(c)
		}
		e.mu.Unlock()
	}
}

// drop begins to retire c, whose connection ended or never was, if nobody has. With mu held. A
// closed endpoint leaves c to Close.
func (e *Endpoint) drop(c *conn) {
	if !c.retiring {
		c.retiring = e.spawnLocked(func() { e.retire(c) })
	}
}

// retire closes c and forgets it. The route stays until then, so that who takes its place knows
// what to wait for.
func (e *Endpoint) retire(c *conn) {
	_ = c.carrier.Close()
	e.mu.Lock()
	delete(e.conns, c.carrier)
	if e.byName[c.peer] == c {
		delete(e.byName, c.peer)
	}
	e.routes.forget(c)
	e.mu.Unlock()
	close(c.gone)
}

// left are the conns that are not retired.
func (e *Endpoint) left() (conns []*conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		conns = append(conns, c)
	}
	return conns
}

// A routes is the way from a peer's number to its conn, as far as ops went there. What it says may
// be old: the number may be another peer's by now, which conn.peer shows, and the conn may have
// ended, which its carrier says.
type routes struct {
	table atomic.Pointer[[]atomic.Pointer[conn]] // by number
}

// at is the conn of a number, nil if none is known.
func (r *routes) at(n fabric.AVAddr) *conn {
	if t := r.table.Load(); t != nil && n < fabric.AVAddr(len(*t)) {
		return (*t)[n].Load()
	}
	return nil
}

// set makes c the conn of n, which an address vector gave out. One call at a time.
func (r *routes) set(n fabric.AVAddr, c *conn) {
	t := r.table.Load()
	if t == nil || n >= fabric.AVAddr(len(*t)) {
		grown := make([]atomic.Pointer[conn], max(8, 2*int(n)))
		if t != nil {
			for i := range *t {
				grown[i].Store((*t)[i].Load())
			}
		}
		t = &grown
		r.table.Store(t)
	}
	(*t)[n].Store(c)
}

// forget takes c out. Not at the same time as set.
func (r *routes) forget(c *conn) {
	t := r.table.Load()
	if t == nil {
		return
	}
	for i := range *t {
		(*t)[i].CompareAndSwap(c, nil)
	}
}
