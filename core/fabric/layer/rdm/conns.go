// SPDX-License-Identifier: MIT

package rdm

import (
	"context"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/fabric/util"
)

// A conn is a carrier and the address of its peer.
type conn struct {
	carrier  Carrier
	peer     fabric.Addr
	gone     chan struct{} // closed when the carrier is closed, and so all its ops have ended
	retiring bool          // under conns.mu
}

// A counterBinding is a BindCounter call to repeat for each carrier.
type counterBinding struct {
	counter fabric.Counter
	events  fabric.CountEvents
}

// conns are the carriers of an Endpoint, with the goroutines that connect, watch and retire them. A
// carrier exists from the first op to a peer, or its first request, until it has ended.
type conns struct {
	e         *Endpoint
	counters  []counterBinding // until the endpoint is enabled
	events    *util.EQ         // of the carriers
	handshake []byte
	routes    routes // to peers; Submit reads it without mu

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	busy   sync.WaitGroup // goroutines; grows with mu held and closed false

	mu       sync.Mutex
	closed   bool
	carriers map[fabric.Endpoint]*conn
	byName   map[fabric.Addr]*conn // the routes
}

func (t *conns) init(e *Endpoint) {
	t.e = e
	t.carriers, t.byName = make(map[fabric.Endpoint]*conn), make(map[fabric.Addr]*conn)
	t.ctx, t.cancel = context.WithCancel(context.Background())
}

// start starts to watch the carriers, which report to events.
func (t *conns) start(events *util.EQ, handshake []byte) {
	t.events, t.handshake = events, handshake
	t.spawn(t.watch)
}

// close closes every carrier. It calls stop once no more carriers can be made.
func (t *conns) close(stop func()) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	stop()
	t.busy.Wait() // the remaining carriers are connected, or aborted
	var closing sync.WaitGroup
	for _, c := range t.carriers {
		closing.Add(1)
		go func() {
			defer closing.Done()
			_ = c.carrier.Close()
		}()
	}
	closing.Wait()
}

// spawn runs fn in a goroutine that close waits for. It returns false if the endpoint is closed.
func (t *conns) spawn(fn func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spawnLocked(fn)
}

// spawnLocked is spawn with mu held.
func (t *conns) spawnLocked(fn func()) bool {
	if t.closed {
		return false
	}
	t.busy.Add(1)
	go func() {
		defer t.busy.Done()
		fn()
	}()
	return true
}

// route returns the conn for ops to peer, whose number is dest. It makes one if there is none, or
// if the only one is ended, which refused op.
func (t *conns) route(dest fabric.AVAddr, peer fabric.Addr, op *fabric.Op, ended *conn) (*conn, error) {
	if err := util.CheckOp(op, &t.e.cfg.Limits); err != nil {
		return nil, err // an invalid op does not connect to the peer
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fabric.ErrClosed
	}
	c := t.byName[peer]
	if c == nil || c == ended {
		var after <-chan struct{}
		if c != nil {
			after = c.gone
			t.drop(c)
		}
		var err error
		if c, err = t.open(peer); err != nil {
			return nil, fmt.Errorf("reach %s: %w", peer, err)
		}
		t.byName[peer] = c
		t.spawnLocked(func() { t.dial(c, after) })
	}
	t.routes.set(dest, c)
	return c, nil
}

// accept makes a conn for a peer's request. An error means that the request has not been answered
// yet.
func (t *conns) accept(peer fabric.Addr, req fabric.ConnReq) error {
	c, err := t.accepting(peer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.e.cfg.DialTimeout)
	defer cancel()
	err = c.carrier.Accept(ctx, req, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil: // the peer gave up
		t.drop(c)
	case t.byName[peer] == nil && !c.retiring:
		t.byName[peer] = c
	}
	return nil
}

// accepting makes a conn for a requesting peer, not connected yet.
func (t *conns) accepting(peer fabric.Addr) (*conn, error) {
	if n := t.e.recv.Orphaned(); n > maxOrphaned {
		return nil, fmt.Errorf("%d bytes of messages from closed connections wait for receives: %w", n, fabric.ErrBusy)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fabric.ErrClosed
	}
	return t.open(peer)
}

// open makes an enabled carrier. The caller holds mu.
func (t *conns) open(peer fabric.Addr) (*conn, error) {
	carrier, err := t.e.cfg.Carrier()
	if err != nil {
		return nil, err
	}
	carrier.Carry(t.e.recv, func() fabric.AVAddr { return t.e.av.Find(peer) })
	if err := t.ready(carrier); err != nil {
		_ = carrier.Close()
		return nil, err
	}
	c := &conn{carrier: carrier, peer: peer, gone: make(chan struct{})}
	t.carriers[carrier] = c
	return c, nil
}

// ready binds a carrier to the endpoint's queues, counters and events, and enables it.
func (t *conns) ready(carrier Carrier) error {
	q := &t.e.Queues
	if err := carrier.BindCQ(q.Tx, fabric.DirTransmit, q.TxSelective); err != nil {
		return err
	}
	if err := carrier.BindCQ(q.Rx, fabric.DirRecv, q.RxSelective); err != nil {
		return err
	}
	for _, b := range t.counters {
		if err := carrier.BindCounter(b.counter, b.events); err != nil {
			return err
		}
	}
	if err := carrier.BindEQ(t.events); err != nil {
		return err
	}
	return carrier.Enable()
}

// dial connects c once the previous conn's ops have all ended. If that fails, it ends the ops that
// wait in c.
func (t *conns) dial(c *conn, after <-chan struct{}) {
	ctx, cancel := context.WithTimeout(t.ctx, t.e.cfg.DialTimeout)
	defer cancel()
	if err := t.connect(ctx, c, after); err != nil {
		c.carrier.Abort(t.whyNot(ctx, c.peer, err))
		t.mu.Lock()
		t.drop(c)
		t.mu.Unlock()
	}
}

func (t *conns) connect(ctx context.Context, c *conn, after <-chan struct{}) error {
	if after != nil {
		select {
		case <-after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, err := c.carrier.Connect(ctx, c.peer, t.handshake)
	return err
}

// whyNot returns the error of ops that wait for a connection to peer.
func (t *conns) whyNot(ctx context.Context, peer fabric.Addr, err error) error {
	switch {
	case t.ctx.Err() != nil:
		return fmt.Errorf("reach %s: endpoint closed: %w", peer, fabric.ErrCanceled)
	case ctx.Err() != nil:
		return fmt.Errorf("reach %s: no answer within %v: %w", peer, t.e.cfg.DialTimeout, fabric.ErrTimeout)
	}
	return fmt.Errorf("reach %s: %w", peer, err)
}

// watch retires the carriers whose connections have ended.
func (t *conns) watch() {
	for {
		event, err := t.events.Wait(t.ctx)
		if err != nil {
			return
		}
		if event.Kind != fabric.EventShutdown {
			continue
		}
		t.mu.Lock()
		if c := t.carriers[event.EP]; c != nil {
			t.drop(c)
		}
		t.mu.Unlock()
	}
}

// drop starts to retire c, whose connection has ended or failed, unless that has begun already. The
// caller holds mu. If the endpoint is closed, Close handles c.
func (t *conns) drop(c *conn) {
	if !c.retiring {
		c.retiring = t.spawnLocked(func() { t.retire(c) })
	}
}

// retire closes c and removes it. The route stays until then, so that its successor can wait for
// it.
func (t *conns) retire(c *conn) {
	_ = c.carrier.Close()
	t.mu.Lock()
	delete(t.carriers, c.carrier)
	if t.byName[c.peer] == c {
		delete(t.byName, c.peer)
	}
	t.routes.forget(c)
	t.mu.Unlock()
	close(c.gone)
}
