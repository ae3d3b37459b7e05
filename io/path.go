// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/io/internal/meter"
	"mori/io/internal/serial"
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
	tr      *transport
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

	todo struct { // notifications, which reaping leaves for others to submit
		sync.Mutex
		some  atomic.Bool // the list is not empty
		list  []pending
		timer *time.Timer // tells the worker; runs while the list is not empty
		wake  time.Time   // when it does
	}

	broken struct {
		sync.Mutex
		is      atomic.Bool // err is set: while it is not, which is asked with each transfer, nobody takes the lock
		err     error       // why the path is closed; nil while it is open
		orphans []*transfer
		passed  bool // the orphans were passed on; later ones are passed on at once
	}

	used       atomic.Int64 // when a transfer began, ns after epoch
	superseded atomic.Bool  // a better path was opened: no new transfers
	dropped    atomic.Bool  // the peer has confirmed that its end is closed

	regions struct { // of the peer, as this path's domain knows them
		sync.Mutex
		byKey map[fabric.RegionKey]fabric.RemoteMR
	}
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
	p.kick, p.quit, p.done, p.gone = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.name = p.tr.name
	if pr, ok := p.ep.(fabric.Prober); ok {
		how, why := pr.Path()
		if why != "" { // more than one way
			p.name += "/" + how
		}
	}
	p.meter = p.peer.engine.meters.Path(p.peer.desc.Key, p.name)
	p.peer.unended.Add(1)
	p.todo.timer = time.NewTimer(time.Hour)
	p.todo.timer.Stop()
	p.cq.OnReady(p.reap)
	go p.work()
	return p
}

// why is the reasons, and what the provider says of the way that it has by now.
func (p *path) why() []string {
	out := slices.Clone(p.reasons)
	for name, text := range p.peer.illnesses(p.route, p.tr) {
		if !slices.ContainsFunc(out, func(s string) bool { return strings.HasPrefix(s, name+": ") }) {
			out = append(out, text)
		}
	}
	if pr, ok := p.ep.(fabric.Prober); ok && p.name != p.tr.name {
		if _, how := pr.Path(); how != "" {
			out = append(out, p.name+": "+how)
		}
	}
	return out
}

// err tells why the path is closed, nil while it is open.
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
	ops := t.batch.ops
	if t.notify && t.kind == fabric.OpWrite && len(ops) == 1 { // the uid travels with the bytes
		ops[0].Flags |= fabric.OpRemoteData
		ops[0].Data = t.uid
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
	ops := t.batch.ops
	if len(ops) >= maxOps || !p.ledger.add(t) {
		t.fail(fmt.Errorf("%d ops in one transfer, or %d transfers in flight: too many: %w", len(ops), maxRows, ErrInvalid))
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

// notifyDelay is how long a notification waits for a transfer that it can go along with, which
// spares a wake-up of the worker.
const notifyDelay = 200 * time.Microsecond

// later leaves the notification of t to the next submit, or to the worker. Unlike submit it may be
// called while reaping.
func (p *path) later(t *transfer) {
	n := t.notification()
	if !p.take(n) {
		return
	}
	n.ops.Add(-1) // nobody submits it in place
	p.leave(pending{t: n, ops: n.batch.ops})
}

// leave leaves work to the next submit, or to the worker.
func (p *path) leave(w pending) {
	p.todo.Lock()
	defer p.todo.Unlock()
	p.todo.list = append(p.todo.list, w)
	p.todo.some.Store(true)
	now := time.Now()
	if wake := w.wake(now); len(p.todo.list) == 1 || wake.Before(p.todo.wake) {
		p.todo.wake = wake
		p.todo.timer.Reset(wake.Sub(now))
	}
}

// wake is when the worker sends w, if nobody has before.
func (w *pending) wake(now time.Time) time.Time {
	if w.due.IsZero() {
		return now.Add(notifyDelay)
	}
	return w.due
}

// takeTodo moves what was left for later, and is due, to the backlog. It needs sub held.
func (p *path) takeTodo() {
	if !p.todo.some.Load() {
		return
	}
	p.todo.Lock()
	defer p.todo.Unlock()
	now, closed := time.Now(), p.err() != nil
	rest := p.todo.list[:0]
	for _, w := range p.todo.list {
		if !closed && w.due.After(now) {
			if len(rest) == 0 || w.due.Before(p.todo.wake) {
				p.todo.wake = w.due
			}
			rest = append(rest, w)
			continue
		}
		p.sub.backlog = append(p.sub.backlog, w)
	}
	clear(p.todo.list[len(rest):])
	p.todo.list = rest
	if p.todo.some.Store(len(rest) > 0); len(rest) > 0 {
		p.todo.timer.Reset(p.todo.wake.Sub(now))
		return
	}
	p.todo.timer.Stop()
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
	told := false // reaping knows that somebody waits
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
				if told {
					break
				}
				// Room that came before we told would pass unnoticed: look once more.
				p.waiting.Store(1)
				told = true
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
	p.tr.forget(p.ep)
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
	p.forgetRegions()
	p.peer.engine.self.Log.Log(context.Background(), p.severity(reason), "path closed", "peer", p.peer.desc.Key, "path", p.name, "reason", reason)
	p.passOrphans()
}

// region makes a region of the peer known to the domain, once.
func (p *path) region(d *MemoryDesc) (fabric.RemoteMR, error) {
	key := fabric.RegionKey{ID: uint64(d.ID), Secret: d.Secret}
	p.regions.Lock()
	defer p.regions.Unlock()
	if err := p.err(); err != nil {
		return nil, err
	}
	if r := p.regions.byKey[key]; r != nil {
		return r, nil
	}
	r, err := p.tr.dom.Import(key.Raw(d.Size))
	if err != nil {
		return nil, fmt.Errorf("import region %d of %q: %w", d.ID, d.EngineKey, err)
	}
	if p.regions.byKey == nil {
		p.regions.byKey = map[fabric.RegionKey]fabric.RemoteMR{}
	}
	p.regions.byKey[key] = r
	return r, nil
}

func (p *path) forgetRegions() {
	p.regions.Lock()
	defer p.regions.Unlock()
	for _, r := range p.regions.byKey {
		_ = r.Close()
	}
	p.regions.byKey = nil
}

// severity is the level for the end of a path: a warning, unless somebody wanted it.
func (p *path) severity(reason error) slog.Level {
	if errors.Is(reason, ErrClosed) || errors.Is(reason, errIdle) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}
