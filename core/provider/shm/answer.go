// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"syscall"

	"mori/core/fabric"
	"mori/core/provider/internal/conn"
	"mori/core/provider/internal/local"
)

// number stores s until the peer answers it, and returns its number.
func (o *outbox) number(s sending) uint32 {
	if s.large {
		o.large++
	}
	if k := len(o.free); k > 0 {
		i := o.free[k-1]
		o.free = o.free[:k-1]
		o.sent[i] = s
		return i
	}
	o.sent = append(o.sent, s)
	return uint32(len(o.sent) - 1)
}

// answered handles the peer's answer to a message. ok is false once the outbox has stopped.
func (o *outbox) answered(number uint64) (t conn.Ticket, op *fabric.Op, ok bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return 0, nil, false, nil
	}
	if number >= uint64(len(o.sent)) || o.sent[number].op == nil {
		return 0, nil, false, fmt.Errorf("peer answered message %d, which is not pending: %w", number, fabric.ErrProtocol)
	}
	s := o.sent[number]
	if s.large {
		o.large--
	}
	o.sent[number] = sending{}
	o.free = append(o.free, uint32(number))
	return s.ticket, s.op, true, nil
}

// answer ends the op of a message that the peer has answered.
func (o *outbox) answer(number, errno uint64) error {
	t, op, ok, err := o.answered(number)
	if !ok {
		return err
	}
	o.path.finish(t, o.answerFault(op, errno))
	return nil
}

func (o *outbox) answerFault(op *fabric.Op, errno uint64) error {
	if errno == 0 {
		return nil
	}
	cause := ringErrno(errno)
	if cause == fabric.Errno(syscall.EFAULT) {
		return local.OpFault(cause, "message of %d bytes to %s: memory is not mapped: was it freed before the op ended?", op.Len(), o.path.ep.Peer())
	}
	return local.OpFault(cause, "message of %d bytes, reply of %s", op.Len(), o.path.ep.Peer())
}
