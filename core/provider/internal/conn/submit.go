// SPDX-License-Identifier: MIT

package conn

import (
	"fmt"

	"mori/core/fabric"
	"mori/core/fabric/util"
	"mori/core/internal/sys"
	"mori/core/provider/internal/frame"
	"mori/core/provider/internal/socket"
	"mori/core/provider/internal/staging"
)

// A todo is what has to be done after Endpoint.mu was released: channels to kick, ops to offer to
// the DataPath, messages to give to it.
type todo struct {
	channels uint32 // a bit each
	offered  []*pendingOp
	messages bool
}

func (t *todo) kick(c *channel) { t.channels |= 1 << c.index }

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
	ep.run(&t)
	return n, err
}

func (ep *Endpoint) endedErr() error {
	if err := ep.state.Submit(fabric.OpRecv); err != nil {
		return err
	}
	return fabric.ErrNotConn
}

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
		return ep.submitRecv(op)
	}
	if err := ep.queues.Tx.Reserve(1); err != nil {
		return err
	}
	var key fabric.RegionKey
	var size uint64
	if op.Kind != fabric.OpSend {
		r := ep.domain.imports.Lookup(op.RSeg.Key)
		if r == nil {
			ep.queues.Failed(op, fabric.ErrNoKey, fmt.Sprintf("handle %#x names no imported region", op.RSeg.Key))
			return nil
		}
		key, size = r.Region, r.Size
	}
	ep.mu.Lock()
	s := ep.pending.take()
	if s == nil {
		ep.mu.Unlock()
		ep.queues.Tx.Unreserve(1)
		return fabric.ErrAgain
	}
	s.op, s.key, s.n, s.errno, s.detail, s.notice, s.entries = *op, key, n, 0, "", false, 0
	s.staged = staging.Transfer{Device: on, RegionLen: size}
	if op.Flags&fabric.OpInject != 0 {
		if err := s.keepBytes(ep.limits.MaxInject); err != nil {
			ep.pending.release(s)
			ep.mu.Unlock()
			ep.queues.Failed(op, socket.Unreadable, unreadableText)
			return nil
		}
	}
	direct := ep.admit(s, t)
	ep.mu.Unlock()
	if direct {
		ep.offerOp(s)
	}
	return nil
}

// keepBytes copies the op's memory, which the caller may use again after Submit, and points the op
// at the copy.
func (s *pendingOp) keepBytes(most uint64) error {
	if s.inject == nil {
		s.inject = make([]byte, most)
	}
	s.inject = s.inject[:s.n]
	if err := socket.Gather(s.inject, &s.op); err != nil {
		return err
	}
	s.op.Seg, s.op.More = fabric.Seg{Addr: sys.AddrOf(s.inject), Len: s.n}, nil
	return nil
}

func (ep *Endpoint) submitRecv(op *fabric.Op) error {
	if err := ep.recv.Post(op); err != nil {
		if ep.shutdown.isEnded() {
			return ep.endedErr()
		}
		return err
	}
	return nil
}

// run does what was left to do. Without Endpoint.mu.
func (ep *Endpoint) run(t *todo) {
	for _, s := range t.offered {
		ep.offerOp(s)
	}
	if t.messages {
		ep.handMessages()
	}
	for i := 0; t.channels != 0; i++ {
		if t.channels&(1<<i) != 0 {
			t.channels &^= 1 << i
			ep.channelAt(i).Kick()
		}
	}
}

// offerDataPath gives an issued read or write to the DataPath, else to the stream.
func (ep *Endpoint) offerOp(s *pendingOp) {
	if ep.path.RMA(s.ticket(), &s.op, s.key) {
		return
	}
	var t todo
	ep.mu.Lock()
	ep.issueStream(s, &t)
	ep.mu.Unlock()
	ep.run(&t)
}

// handMessages gives the DataPath the messages that wait, one at a time: whoever finds another at
// it leaves them to that one. What is left when the connection ends is ended with it.
func (ep *Endpoint) handMessages() {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if ep.handed {
		return
	}
	ep.handed = true
	for ep.handing.Len() > 0 && !ep.shutdown.isEnded() {
		s := ep.handing.Pop()
		ep.mu.Unlock()
		ep.messages.Send(s.ticket(), &s.op)
		ep.mu.Lock()
	}
	ep.handed = false
}

// Finish ends an op that the DataPath took: err is nil or wraps its cause.
func (ep *Endpoint) Finish(k Ticket, err error) {
	s := ep.pending.lookup(k)
	if s == nil {
		panic(fmt.Sprintf("conn: op %#x finished twice", k))
	}
	if ep.shutdown.Enter() {
		defer ep.shutdown.Leave() // what the end of this op sets off may be sent from here
	}
	if err != nil {
		s.errno, s.detail = fabric.ErrnoOf(err), err.Error()
	}
	s.mark(opWritten)
	if s.mark(opAnswered) {
		ep.complete(s)
	}
}

// Forward sends the remote data of a write whose payload the DataPath has moved. The op ends when
// the peer has it.
func (ep *Endpoint) Forward(k Ticket) {
	s := ep.pending.lookup(k)
	if s == nil {
		panic(fmt.Sprintf("conn: op %#x forwarded after its end", k))
	}
	if !ep.shutdown.Enter() {
		return // the end of the connection ends the op
	}
	defer ep.shutdown.Leave()
	var t todo
	ep.mu.Lock()
	s.notice = true
	ep.issueStream(s, &t)
	ep.mu.Unlock()
	ep.run(&t)
}

// SendFrame sends an extension frame; it copies body and does not wait. ErrAgain if
// MaxExtensionQueue bytes wait already.
func (ep *Endpoint) SendFrame(kind uint8, body []byte) error {
	if len(body) > frame.MaxExtension {
		return fmt.Errorf("send extension frame of %d bytes, limit is %d: %w", len(body), frame.MaxExtension, fabric.ErrMsgSize)
	}
	if !ep.shutdown.Enter() {
		return fabric.ErrNotConn
	}
	defer ep.shutdown.Leave()
	if ep.extra.Add(int64(len(body))) > MaxExtensionQueue {
		ep.extra.Add(-int64(len(body)))
		return fabric.ErrAgain
	}
	l := ep.channels[0]
	j := extension(kind, body)
	l.Post(&j, uint64(len(body)))
	l.Kick()
	return nil
}

// HandBack gives an op that the DataPath took, and moved no byte of, to the stream, as if RMA had
// answered false.
func (ep *Endpoint) HandBack(k Ticket) {
	s := ep.pending.lookup(k)
	if s == nil {
		panic(fmt.Sprintf("conn: op %#x handed back after its end", k))
	}
	if !ep.shutdown.Enter() {
		return // the end of the connection ends the op
	}
	defer ep.shutdown.Leave()
	var t todo
	ep.mu.Lock()
	ep.issueStream(s, &t)
	ep.mu.Unlock()
	ep.run(&t)
}
