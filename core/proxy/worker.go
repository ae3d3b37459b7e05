// SPDX-License-Identifier: MIT

package proxy

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"mori/core/fabric"
	"mori/core/internal/sys/thread"
	"mori/native/abi"
)

// batch is the number of ops submitted, and completions read, at a time.
const batch = 64

// A worker is the thread of a queue. A command passes the ring (read and checked), the builder
// (ops), submit (to the endpoint), readCompletions, and the ring again, which frees its slot in
// order.
type worker struct {
	q        *Queue
	ring     ring
	builder  builder
	requests requests
	executor *executor // nil without an atomic server
	pause    pause

	failed []bool // by PE: it accepts no commands
	errors int    // number of PEs that failed
	closed bool   // the port is closed

	got   [batch]fabric.Completion
	entry fabric.ErrEntry
}

func (w *worker) init(q *Queue) {
	w.q = q
	w.ring = ring{places: &q.places, log: q.log, pending: make([]pendingCommand, q.cfg.Slots)}
	w.requests = newRequests(&q.cfg)
	w.builder.init(q, &w.ring, &w.requests)
	w.failed = make([]bool, len(q.cfg.Peers))
	w.pause = pause{spin: q.cfg.Spin, most: q.cfg.Nap}
}

// run serves the queue until it is stopped and all pending commands have ended.
func (w *worker) run() {
	runtime.LockOSThread() // it polls, and sleeps in the kernel
	defer runtime.UnlockOSThread()
	defer close(w.q.ended)
	if w.executor != nil {
		defer w.executor.close()
	}
	for {
		stop := w.q.stop.Load()
		seen := w.q.news.Value.Load() // a later change ends a sleep
		busy := w.turn(stop)
		if stop && w.builder.made == 0 {
			w.publish() // with abi.ProxyClosed
			return
		}
		if busy {
			w.pause.work()
		} else {
			w.rest(seen)
		}
	}
}

// turn does all available work, and reports whether there was any.
func (w *worker) turn(stop bool) bool {
	select {
	case pe := <-w.q.resets:
		w.reset(pe)
	default:
	}
	taken := 0
	if !stop {
		taken = w.takeCommands()
	}
	taken += w.sendReplies()
	sent := w.submit()
	ended := w.readCompletions()
	if w.ring.retire() || stop {
		w.publish()
	}
	return taken+sent+ended > 0
}

// takeCommands reads commands while there are any, and there is room for their ops.
func (w *worker) takeCommands() (n int) {
	for ; n < batch && len(w.builder.ops) < batch && !w.closed; n++ {
		c, ok := w.ring.peek()
		if !ok {
			return n
		}
		if w.mustWait(&c) {
			w.ring.hold(c)
			return n
		}
		w.take(&c)
	}
	return n
}

// mustWait reports whether this command must wait for others: too many bytes are pending, or
// requests, which end with a reply instead of their op.
func (w *worker) mustWait(c *command) bool {
	if w.ring.bytes > 0 && w.ring.bytes+c.bytes > w.q.cfg.Bytes && c.kind.moves() {
		return true
	}
	if int(c.pe) >= len(w.failed) || w.requests.pending(c.pe) == 0 {
		return false
	}
	switch c.kind {
	case kindFence:
		return true
	case kindPutSignal, kindAtomic, kindFetch:
		return w.requests.free(c.pe) < 0
	}
	return false
}

// take builds the ops of a command. The command of a failed PE ends at once; its status has the
// reason.
func (w *worker) take(c *command) {
	position := w.ring.take(c)
	w.q.stats.commands.Add(1)
	switch {
	case c.kind == 0 || c.kind >= kindEnd || int(c.pe) >= len(w.failed):
		w.fail(c.pe, fmt.Errorf("command %d for PE %d of %d: %w", c.kind, c.pe, len(w.failed), fabric.ErrInvalid))
	case w.failed[c.pe]:
		w.q.stats.failed.Add(1)
	default:
		if err := w.builder.build(position, c); err != nil {
			w.fail(c.pe, fmt.Errorf("%v of %d bytes at offset %#x of region %d: %w", c.kind, c.bytes, c.remote, c.region, err))
		}
	}
	w.ring.ended(position)
}

// publish shows kernels which commands have completed.
func (w *worker) publish() {
	v := w.ring.tail
	if w.errors > 0 {
		v |= abi.ProxyTrouble
	}
	if w.q.stop.Load() || w.closed {
		v |= abi.ProxyClosed
	}
	atomic.StoreUint64(&w.q.places.board.Ended, v)
}

// submit passes ops to the endpoint and returns how many it accepted.
func (w *worker) submit() (sent int) {
	ops := w.builder.ops
	for sent < len(ops) {
		n, err := w.q.cfg.Port.ep.Submit(ops[sent:])
		sent += n
		if errors.Is(err, fabric.ErrAgain) {
			break
		}
		if err != nil { // context of the first one left
			w.completed(ops[sent].Ctx, fmt.Errorf("submit: %w", err))
			sent++
		}
	}
	w.builder.submitted(sent)
	return sent
}

// readCompletions returns the number of completions.
func (w *worker) readCompletions() (ended int) {
	cq := w.q.cfg.Port.cq
	for !w.closed {
		n, err := cq.Read(w.got[:])
		for i := range w.got[:n] {
			if w.got[i].Kind == fabric.OpRemoteWrite {
				w.notified(w.got[i].Data)
				continue
			}
			w.completed(w.got[i].Ctx, nil)
		}
		ended += n
		switch {
		case errors.Is(err, fabric.ErrAvail):
			if err := cq.ReadErr(&w.entry); err == nil {
				e := w.entry
				w.completed(e.Ctx, &e)
				ended++
			}
		case errors.Is(err, fabric.ErrClosed):
			ended++
			w.abandon()
		case err != nil || n == 0:
			return ended
		}
	}
	return ended
}

// abandon ends all pending commands: the port is closed, and no byte of them can move any more.
func (w *worker) abandon() {
	w.closed, w.builder.ops = true, nil
	for p := w.ring.tail; p != w.ring.next; p++ {
		if c := w.ring.command(p); !c.done && c.left > 0 {
			w.fail(c.pe, ErrClosed)
			if !c.done { // its request was only a part of it
				w.ring.finish(p)
			}
		}
	}
	w.builder.made = 0
	w.publish()
}

// completed ends one op of the command at a position.
func (w *worker) completed(position uint64, err error) {
	w.builder.made--
	if position&replyCtx != 0 {
		if err != nil {
			w.fail(uint32(position&^replyCtx), fmt.Errorf("reply: %w", closed(err)))
		}
		return
	}
	if err != nil {
		c := w.ring.command(position)
		w.fail(c.pe, fmt.Errorf("%v of %d bytes: %w", c.kind, c.bytes, closed(err)))
	}
	w.ring.ended(position)
}

// closed replaces a closing endpoint's error by ErrClosed: only Close of the port cancels its ops.
func closed(err error) error {
	if errors.Is(err, fabric.ErrCanceled) || errors.Is(err, fabric.ErrClosed) {
		return fmt.Errorf("%v: %w", err, ErrClosed)
	}
	return err
}

// notified handles a peer's write to the atomic server, which may contain anything.
func (w *worker) notified(data uint64) {
	if w.executor == nil {
		return
	}
	s := w.requests.server
	pe, slot, isReply := parseNotice(data)
	if slot >= s.slots || int(pe) >= len(w.failed) {
		return
	}
	if isReply {
		w.replied(pe, slot)
		return
	}
	var r request
	r.parse(s.memory[s.requestIn(pe, slot):])
	j := job{reply: reply{pe: pe, slot: slot, ticket: r.ticket}}
	var err error
	if j.change, err = r.change(&w.q.cfg.Local[0]); err == nil && !w.executor.add(j) {
		err = fabric.ErrAgain // more requests than a peer has slots
	}
	if err != nil {
		j.status = statusOf(err)
		w.builder.appendReply(&j.reply)
	}
}

// replied ends the request of a slot.
func (w *worker) replied(pe uint32, slot int) {
	position, r, ok := w.requests.received(pe, slot)
	if !ok {
		return
	}
	if c := w.ring.command(position); r.status != 0 {
		w.fail(pe, fmt.Errorf("%v, executed by the PE's atomic server: %w", c.kind, fabric.Errno(r.status)))
	} else if c.kind == kindFetch {
		atomic.StoreUint64(&w.ring.result(position).Value, r.old)
	}
	w.ring.ended(position)
}

// sendReplies queues the executors' replies.
func (w *worker) sendReplies() (n int) {
	if w.executor == nil || w.closed {
		return 0
	}
	for ; len(w.builder.ops) < batch; n++ {
		select {
		case r := <-w.executor.replies:
			w.builder.appendReply(&r)
		default:
			return n
		}
	}
	return n
}

// fail disables a PE. It will not reply to requests, or no command waits for its replies.
func (w *worker) fail(pe uint32, err error) {
	w.q.stats.failed.Add(1)
	if int(pe) >= len(w.failed) || w.failed[pe] {
		return
	}
	err = fmt.Errorf("proxy, PE %d over %s: %w", pe, w.q.cfg.Port.Info.Provider, err)
	w.failed[pe] = true
	w.errors++
	w.q.errors[pe].Store(&err)
	atomic.StoreUint32(&w.q.places.status[pe], statusOf(err))
	w.requests.drop(pe, w.ring.ended)
}

// statusOf returns the errno that kernels see for an error.
func statusOf(err error) uint32 {
	for e := err; e != nil; {
		if n, ok := e.(fabric.Errno); ok && n > 0 {
			return uint32(n)
		}
		if e = errors.Unwrap(e); e == nil {
			break
		}
	}
	if errors.Is(err, ErrClosed) {
		return uint32(fabric.ErrClosed)
	}
	return uint32(fabric.ErrOther)
}

// reset enables a PE again.
func (w *worker) reset(pe int) {
	if w.failed[pe] {
		w.failed[pe] = false
		w.errors--
		w.q.errors[pe].Store(nil)
		atomic.StoreUint32(&w.q.places.status[pe], 0)
		w.publish()
	}
}

// rest waits for the next command or completion, for a bounded time. seen is the value of the
// queue's news before the last turn.
func (w *worker) rest(seen uint32) {
	q := w.q
	sleep := w.pause.next(func() time.Duration { return time.Since(began) })
	if sleep == 0 {
		thread.Yield()
		return
	}
	if q.news.Value.Load() != seen || w.ready() {
		return
	}
	q.stats.naps.Add(1)
	q.news.Park(seen, sleep)
}

// ready checks for a command once more before a sleep.
func (w *worker) ready() bool {
	_, ok := w.ring.peek()
	return ok && !w.ring.holds
}
