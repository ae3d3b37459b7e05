// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// Submit queues a prefix of ops; see fabric.Endpoint.
func (ep *Endpoint) Submit(ops []fabric.Op) (int, error) {
	if !ep.shutdown.Enter() {
		return 0, ep.endedErr()
	}
	defer ep.shutdown.Leave()
	var t todo
	n, err := 0, error(nil)
	for ; n < len(ops) && err == nil; n++ {
		if err = ep.submit(&ops[n], &t); err != nil {
			break
		}
	}
	ep.out.run(&t)
	return n, err
}

func (ep *Endpoint) endedErr() error {
	if err := ep.State.Submit(fabric.OpRecv); err != nil {
		return err
	}
	return fabric.ErrNotConn
}

// submit checks op, reserves room for its completion, and hands it to its queue.
func (ep *Endpoint) submit(op *fabric.Op, t *todo) error {
	if err := ep.mayTake(op.Kind); err != nil {
		return err
	}
	n, err := util.CheckOpLen(op, &ep.limits)
	if err != nil {
		return err
	}
	on, err := ep.domain.devices.OfOp(op, ep.domain.regions)
	if err != nil {
		return err
	}
	if op.Kind == fabric.OpRecv {
		if err = ep.recv.Post(op); err != nil && ep.shutdown.isEnded() {
			return ep.endedErr()
		}
		return err
	}
	if err := ep.Queues.Tx.Reserve(1); err != nil {
		return err
	}
	var key fabric.RegionKey
	var size uint64
	if op.Kind != fabric.OpSend {
		r := ep.domain.imports.Lookup(op.RSeg.Key)
		if r == nil {
			ep.Queues.Failed(op, fabric.ErrNoKey, fmt.Sprintf("handle %#x is not an imported region", op.RSeg.Key))
			return nil
		}
		key, size = r.Region, r.Size
	}
	return ep.out.add(op, n, key, size, on, t)
}

// mayTake returns nil if an op of this kind may be submitted now. Its errors are bare causes.
func (ep *Endpoint) mayTake(kind fabric.OpKind) error {
	if !ep.carries {
		return ep.State.Submit(kind)
	}
	if kind == fabric.OpRecv {
		return fmt.Errorf("submit a receive to an endpoint that has none: %w", fabric.ErrInvalid)
	}
	return ep.State.SubmitEarly()
}

// add makes a checked op pending. n is the op's length in bytes, key its remote region of size
// bytes, and on the device of its local memory. The caller has reserved room in the queue.
func (o *outbound) add(op *fabric.Op, n uint64, key fabric.RegionKey, size uint64, on *device.Staging, t *todo) error {
	o.mu.Lock()
	s := o.pending.take()
	if s == nil {
		o.mu.Unlock()
		o.ep.Queues.Tx.Unreserve(1)
		return fabric.ErrAgain
	}
	s.op, s.key, s.n, s.errno, s.detail, s.notice, s.entries = *op, key, n, 0, "", false, 0
	s.staged = staging.Transfer{Device: on, RegionLen: size}
	if op.Flags&fabric.OpInject != 0 {
		if err := s.keepBytes(o.ep.limits.MaxInject); err != nil {
			o.pending.release(s)
			o.mu.Unlock()
			o.ep.Queues.Failed(op, socket.Unreadable, unreadableText)
			return nil
		}
	}
	direct := o.admit(s, t)
	o.mu.Unlock()
	if direct {
		o.offer(s)
	}
	return nil
}

// admit handles a new op: it issues the op, or holds it behind a fence or until the connection is
// made. It reports whether the caller must offer the op to the DataPath. The caller holds o.mu.
func (o *outbound) admit(s *pendingOp, t *todo) (direct bool) {
	if !o.launched || o.fences.held.Len() > 0 || o.fences.blocks(s) {
		o.fences.held.Push(s)
		return false
	}
	return o.issue(s, t)
}

// issue starts an op. The caller holds o.mu.
func (o *outbound) issue(s *pendingOp, t *todo) (direct bool) {
	o.fences.inFlight++
	switch ep := o.ep; {
	case ep.path == nil:
	case s.op.Kind == fabric.OpRead, s.op.Kind == fabric.OpWrite:
		return true
	case s.op.Kind == fabric.OpSend && ep.messages != nil && ep.messages.Messages():
		o.handoff.waiting.Push(s)
		t.messages = true
		return false
	}
	o.issueStream(s, t)
	return false
}

// offer passes an issued read or write to the DataPath. If the DataPath declines it, the op uses
// the stream.
func (o *outbound) offer(s *pendingOp) {
	if !o.ep.path.RMA(s.ticket(), &s.op, s.key) {
		o.stream(s, false)
	}
}

// stream sends an issued op on the stream. If notice is set, it sends only the remote data.
func (o *outbound) stream(s *pendingOp, notice bool) {
	var t todo
	o.mu.Lock()
	s.notice = notice
	o.issueStream(s, &t)
	o.mu.Unlock()
	o.run(&t)
}

// handOff passes the waiting messages to the DataPath. Only one goroutine does so at a time; others
// leave their messages to it. At the end of the connection, flush ends the remaining ones.
func (o *outbound) handOff() {
	h := &o.handoff
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.busy {
		return
	}
	h.busy = true
	for h.waiting.Len() > 0 && !o.ep.shutdown.isEnded() {
		s := h.waiting.Pop()
		o.mu.Unlock()
		o.ep.messages.Send(s.ticket(), &s.op)
		o.mu.Lock()
	}
	h.busy = false
}
