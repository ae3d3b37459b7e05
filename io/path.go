// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/meter"
	"mori/io/internal/serial"
	"mori/io/internal/transport"
)

// A path is one connected endpoint to one peer, and what is in flight on it.
//
// Flow of a transfer: start ─▶ (backlog while the endpoint's queue is full) ─▶ endpoint ─▶
// completion queue ─▶ reap ─▶ opsEnded. Completions are reaped by whoever adds them to the queue:
// the submitting goroutine for what the provider finishes inline, else the provider's own, which
// saves two hand-overs between goroutines (8 bytes over TCP). Reaping never submits, since it may
// run inside Submit; what is to be submitted then is left to the path's worker. sub is held while
// submitting, and order.mu while statuses change.
type path struct {
	peer    *peer
	route   *route
	tr      *transport.Transport
	ep      fabric.Endpoint
	cq      fabric.CQ
	name    string   // "shm/cma"
	reasons []string // why each better path is not used; why adds how it moves bytes
	remote  bool     // the peer takes notifications
	token   []byte   // what our connection is known by at the peer
	meter   *meter.Path

	ledger ledger
	reaps  serial.Calls          // who reaps, and whether there is more
	ended  [16]fabric.Completion // scratch of who reaps
	kick   chan struct{}         // wakes the worker
	quit   chan struct{}         // ends it
	done   chan struct{}         // closed when it has returned
	gone   chan struct{}         // closed when close is done

	sub struct {
		sync.Mutex
		backlog []pending // from next on, oldest first
		next    int
	}
	waiting atomic.Int64 // length of the backlog, or 1 while it is found out

	todo deferred // notifications, and ops to be sent again

	broken struct {
		sync.Mutex
		is      atomic.Bool // err is set; each transfer asks this, without the lock
		err     error       // why the path is closed; nil while it is open
		orphans []*transfer
		passed  bool // the orphans were passed on; later ones are passed on at once
	}

	used       atomic.Int64 // when a transfer began, ns after epoch
	superseded atomic.Bool  // a better path was opened: no new transfers
	dropped    atomic.Bool  // the peer has confirmed that its end is closed

	regions imports // of the peer
}

// pending is what of a transfer the endpoint had no room for, or the notification of one that has
// ended.
type pending struct {
	t   *transfer
	ops []fabric.Op
	due time.Time // not to be sent before, unless the path closes; zero: with the next submit
}

// newPath starts the worker of a connected endpoint.
func newPath(p *path) *path {
	p.kick, p.quit = make(chan struct{}, 1), make(chan struct{})
	p.done, p.gone = make(chan struct{}), make(chan struct{})
	p.name = p.tr.Name()
	if pr, ok := p.ep.(fabric.Prober); ok {
		how, why := pr.Path()
		if why != "" { // more than one way
			p.name += "/" + how
		}
	}
	p.meter = p.peer.engine.meters.Path(p.peer.desc.Key, p.name)
	p.peer.unended.Add(1)
	p.todo.init()
	p.cq.OnReady(p.reap)
	go p.work()
	return p
}

// how is what the provider says of how p moves bytes by now, if it has several ways.
func (p *path) how() []string {
	if pr, ok := p.ep.(fabric.Prober); ok && p.name != p.tr.Name() {
		if _, how := pr.Path(); how != "" {
			return []string{p.name + ": " + how}
		}
	}
	return nil
}

// err returns why the path is closed, nil while it is open.
func (p *path) err() error {
	if !p.broken.is.Load() {
		return nil
	}
	p.broken.Lock()
	defer p.broken.Unlock()
	return p.broken.err
}

// start takes t into the ledger and sends its ops. t ends exactly once, whatever happens.
func (p *path) start(t *transfer) {
	if !p.take(t) {
		return
	}
	t.notify = t.session.notify && p.remote && !t.silent
	ops := t.batch.Ops
	if t.notify && t.kind == fabric.OpWrite && len(ops) == 1 { // the uid travels with the bytes
		t.batch.Carry(t.uid)
		t.notify = false
	}
	p.submit(t, ops)
	p.opsEnded(t, 1)
}

// take gives t a row of the ledger and its ops their Ctx, or ends it. ops counts one for whoever
// calls: t can't end meanwhile.
func (p *path) take(t *transfer) bool {
	if t.path.Load() != p {
		t.path.Store(p)
	}
	ops := t.batch.Ops
	if len(ops) >= maxOps || !p.ledger.add(t) {
		t.fail(fmt.Errorf("%d ops in one transfer, or %d pending transfers: too many: %w",
			len(ops), maxRows, ErrInvalid))
		t.end()
		return false
	}
	for i := range ops {
		ops[i].Ctx = t.slot | uint64(i)
	}
	t.ops.Store(int64(len(ops)) + 1)
	p.used.Store(int64(t.start.Sub(epoch)))
	return true
}

// submit hands ops to the endpoint, or to the backlog.
func (p *path) submit(t *transfer, ops []fabric.Op) {
	if len(ops) == 0 {
		return
	}
	p.sub.Lock()
	p.takeTodo()
	p.sub.backlog = append(p.sub.backlog, pending{t: t, ops: ops})
	refused := p.pumpLocked()
	p.sub.Unlock()
	p.refuse(refused)
}

// later leaves the notification of t to the next submit, or to the worker. Unlike submit it may be
// called while reaping.
func (p *path) later(t *transfer) {
	n := t.notification()
	if !p.take(n) {
		return
	}
	n.ops.Add(-1) // nobody submits it in place
	p.todo.add(pending{t: n, ops: n.batch.Ops})
}

// takeTodo moves what is due of what was left for later to the backlog. It needs sub held.
func (p *path) takeTodo() {
	if p.todo.some.Load() {
		p.sub.backlog = p.todo.move(p.sub.backlog, p.err() != nil)
	}
}

// pump sends what waits, as far as there is room.
func (p *path) pump() {
	p.sub.Lock()
	p.takeTodo()
	refused := p.pumpLocked()
	p.sub.Unlock()
	p.refuse(refused)
}

// pumpLocked needs sub held and returns what the endpoint will never take.
func (p *path) pumpLocked() (refused []refusal) {
	s := &p.sub
	announced := false // reaping knows that ops wait
	for s.next < len(s.backlog) {
		head := &s.backlog[s.next]
		if len(head.ops) == 0 { // withdrawn
			*head = pending{}
			s.next++
			continue
		}
		n, err := p.ep.Submit(head.ops)
		head.ops = head.ops[n:]
		if len(head.ops) > 0 {
			if errors.Is(err, fabric.ErrAgain) {
				if announced {
					break
				}
				// Room that came before that would pass unnoticed: try once more.
				p.waiting.Store(1)
				announced = true
				continue
			}
			refused = append(refused, refusal{head.t, len(head.ops), err})
		}
		*head = pending{}
		s.next++
	}
	if s.next == len(s.backlog) {
		s.backlog, s.next = s.backlog[:0], 0
	}
	p.waiting.Store(int64(len(s.backlog) - s.next))
	return refused
}

// A refusal is the rest of a transfer that the endpoint did not take.
type refusal struct {
	t   *transfer
	ops int
	err error
}

func (p *path) refuse(all []refusal) {
	for _, r := range all {
		p.opFailed(r.t, fmt.Errorf("submit: %w", r.err))
		p.opsEnded(r.t, int64(r.ops))
	}
}

// close ends the path for the given reason. When it returns no byte of a transfer on it can land on
// this side; what the transfers left undone is on its way to another path.
func (p *path) close(reason error) {
	p.broken.Lock()
	if p.broken.err != nil {
		p.broken.Unlock()
		<-p.gone
		return
	}
	p.broken.err = reason
	p.broken.is.Store(true)
	p.broken.Unlock()
	defer p.peer.unended.Done()
	defer close(p.gone)
	p.tr.Forget(p.ep)
	p.pump()         // notifications of what has succeeded
	_ = p.ep.Close() // nothing to do about it: every op has its error entry
	p.reap()
	close(p.quit)
	<-p.done
	p.todo.timer.Stop()
	p.pump() // the closed endpoint refuses the backlog
	p.reap()
	p.reaps.Settle()
	_ = p.cq.Close()
	p.regions.close()
	p.peer.engine.self.Log.Log(context.Background(), p.severity(reason), "path closed",
		"peer", p.peer.desc.Key, "path", p.name, "reason", reason)
	p.passOrphans()
}

// severity is the level for the end of a path: a warning, unless this side or the peer wanted it.
func (p *path) severity(reason error) slog.Level {
	switch {
	case errors.Is(reason, ErrClosed) || errors.Is(reason, errIdle):
		return slog.LevelDebug
	case errors.Is(reason, fabric.ErrShutdown):
		return slog.LevelInfo
	}
	return slog.LevelWarn
}
