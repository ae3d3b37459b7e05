// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"mori/core/fabric"
)

// A path is one connected endpoint to one peer, and what is in flight on it.
//
// Flow of a transfer: submit ─▶ (backlog while the endpoint's queue is full) ─▶ endpoint ─▶ completion queue ─▶
// settle ─▶ stage. Completions are read by the submitting goroutine right after Submit, which catches all that the
// provider finished inline, and by the poller. Locks: sub before none; nothing is held while statuses change.
type path struct {
	peer    *peer
	tr      *transport
	ep      fabric.Endpoint
	cq      fabric.CQ
	name    string   // "shm/cma"
	reasons []string // why each better path is not used
	remote  bool     // the peer takes notifications

	ledger   ledger
	inflight atomic.Int64 // transfers
	lazy     bool         // the provider finishes small ops inline: the poller sleeps while nothing is in flight
	kick     chan struct{}
	stop     context.CancelFunc
	polling  chan struct{} // closed when the poller has returned
	gone     chan struct{} // closed when close is done

	sub struct {
		sync.Mutex
		backlog []pending
	}

	broken struct {
		sync.Mutex
		err error // why the path is closed; nil while it is open
	}
}

// pending is what of a transfer the endpoint had no room for.
type pending struct {
	t   *transfer
	ops []fabric.Op
}

// newPath starts the poller of a connected endpoint.
func newPath(p *path) *path {
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.kick, p.polling, p.gone = stop, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	p.name = p.tr.name
	if pr, ok := p.ep.(fabric.Prober); ok {
		how, why := pr.Path()
		if why != "" { // more than one way
			p.name += "/" + how
			p.reasons = append(p.reasons, p.name+": "+why)
		}
	}
	p.lazy = worksInline(p.ep)
	go p.poll(ctx)
	return p
}

// err tells why the path is closed, nil while it is open.
func (p *path) err() error {
	p.broken.Lock()
	defer p.broken.Unlock()
	return p.broken.err
}

// start takes t into the ledger and sends its ops. t ends exactly once, whatever happens.
func (p *path) start(t *transfer) {
	p.ledger.add(t)
	p.inflight.Add(1)
	ops := t.batch.ops
	for i := range ops {
		ops[i].Ctx = t.slot
	}
	t.notify = t.session.notify && p.remote
	if t.notify && t.kind == fabric.OpWrite && len(ops) == 1 { // the uid travels with the bytes
		ops[0].Flags |= fabric.OpRemoteData
		ops[0].Data = t.uid
		t.notify = false
	}
	t.ops.Store(int64(len(ops)) + 1) // one for ourselves: t can't end while we submit
	p.submit(t, ops)
	p.opsEnded(t, 1)
	p.drain()
	p.wakePoller()
}

// submit hands ops to the endpoint, or to the backlog.
func (p *path) submit(t *transfer, ops []fabric.Op) {
	if len(ops) == 0 {
		return
	}
	p.sub.Lock()
	defer p.sub.Unlock()
	if len(p.sub.backlog) == 0 {
		n, err := p.ep.Submit(ops)
		if ops = ops[n:]; len(ops) == 0 {
			return
		}
		if !errors.Is(err, fabric.ErrAgain) {
			p.refuse(t, len(ops), err)
			return
		}
	}
	p.sub.backlog = append(p.sub.backlog, pending{t, ops})
}

// refuse ends n ops of t that the endpoint did not take.
func (p *path) refuse(t *transfer, n int, err error) {
	if cause := p.err(); cause != nil {
		err = cause
	}
	t.fail(fmt.Errorf("submit: %w", err))
	go p.opsEnded(t, int64(n)) // elsewhere: the caller holds sub, and the next stage submits
}

// pump sends what waits in the backlog, as far as there is room.
func (p *path) pump() {
	p.sub.Lock()
	defer p.sub.Unlock()
	for len(p.sub.backlog) > 0 {
		head := &p.sub.backlog[0]
		n, err := p.ep.Submit(head.ops)
		head.ops = head.ops[n:]
		if len(head.ops) > 0 {
			if errors.Is(err, fabric.ErrAgain) {
				return
			}
			p.refuse(head.t, len(head.ops), err)
		}
		p.sub.backlog[0] = pending{}
		p.sub.backlog = p.sub.backlog[1:]
	}
	p.sub.backlog = nil
}

// wakePoller makes sure that the poller looks as long as something is in flight.
func (p *path) wakePoller() {
	if p.lazy && p.inflight.Load() == 0 {
		return
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// poll reads completions until the path closes.
func (p *path) poll(ctx context.Context) {
	defer close(p.polling)
	done := make([]fabric.Completion, 64)
	for {
		if p.lazy && p.inflight.Load() == 0 {
			select {
			case <-p.kick:
			case <-ctx.Done():
				return
			}
			continue
		}
		n, err := p.cq.Wait(ctx, done)
		if !p.settle(done[:n], err) {
			return
		}
	}
}

// drain reads what is complete now.
func (p *path) drain() {
	var done [16]fabric.Completion
	for {
		n, err := p.cq.Read(done[:])
		if n == 0 && !errors.Is(err, fabric.ErrAvail) {
			return
		}
		if !p.settle(done[:n], err) {
			return
		}
	}
}

// settle books completions and, if err says so, error entries. False: the queue is closed.
func (p *path) settle(done []fabric.Completion, err error) bool {
	some := len(done) > 0 || errors.Is(err, fabric.ErrAvail)
	for i := range done {
		if t := p.ledger.get(done[i].Ctx); t != nil {
			t.progress(done[i].Len)
			p.opsEnded(t, 1)
		}
	}
	if errors.Is(err, fabric.ErrAvail) {
		var e fabric.ErrEntry
		for p.cq.ReadErr(&e) == nil {
			if t := p.ledger.get(e.Ctx); t != nil {
				cause := e
				t.fail(&cause)
				p.opsEnded(t, 1)
			}
		}
		err = nil
	}
	if some {
		p.pumpIfWaiting()
	}
	return err == nil || errors.Is(err, fabric.ErrAgain)
}

func (p *path) pumpIfWaiting() {
	p.sub.Lock()
	waiting := len(p.sub.backlog) > 0
	p.sub.Unlock()
	if waiting {
		p.pump()
	}
}

// opsEnded counts n ended ops of t and moves it to its next stage after the last.
func (p *path) opsEnded(t *transfer, n int64) {
	if t.ops.Add(-n) > 0 {
		return
	}
	if err := t.failure(); err != nil {
		if cause := p.err(); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		p.end(t, codeOf(err), fmt.Sprintf("%s: %v", t.report(), err))
		return
	}
	if t.notify {
		t.notify = false
		t.ops.Store(1)
		p.submit(t, []fabric.Op{{Kind: fabric.OpWrite, Flags: fabric.OpWantCQE | fabric.OpRemoteData, RSeg: fabric.RSeg{Key: t.session.plan.Load().to.key}, Data: t.uid, Ctx: t.slot}})
		return
	}
	p.end(t, CodeSuccess, "success")
}

// end closes the books on t.
func (p *path) end(t *transfer, code StatusCode, msg string) {
	p.ledger.remove(t.slot)
	t.batch.release()
	t.batch = nil
	t.session.local.leave()
	p.peer.engine.counters.ended(t, code)
	p.peer.order.finish(t, code, msg)
	p.inflight.Add(-1)
	if code.Failed() {
		p.peer.engine.log.Log(context.Background(), p.severity(slog.LevelError), "transfer failed", "code", code, "reason", msg)
	}
}

// close ends the path for the given reason: every transfer on it fails, and when close returns no byte of any of
// them can land on this side.
func (p *path) close(reason error) {
	p.broken.Lock()
	if p.broken.err != nil {
		p.broken.Unlock()
		<-p.gone
		return
	}
	p.broken.err = reason
	p.broken.Unlock()
	defer close(p.gone)
	p.tr.forget(p.ep)
	_ = p.ep.Close() // nothing to do about it: every op has its error entry
	p.pump()         // the backlog is refused by the closed endpoint
	p.drain()
	p.stop()
	<-p.polling
	p.drain()
	_ = p.cq.Close()
	p.peer.engine.log.Log(context.Background(), p.severity(slog.LevelWarn), "path closed", "peer", p.peer.desc.Key, "path", p.name, "reason", reason)
}

// severity is the level for what went wrong on the path: l, unless the user closed the engine.
func (p *path) severity(l slog.Level) slog.Level {
	if errors.Is(p.err(), ErrClosed) {
		return slog.LevelDebug
	}
	return l
}
