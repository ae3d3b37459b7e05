// SPDX-License-Identifier: MIT

package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// slices are the lists of ops that are copied inline. A call through vmCalls would move lists on the stack to the heap each time.
var slices = sync.Pool{New: func() any { return newSlice() }}

func newSlice() *slice {
	return &slice{local: make([]sys.Iovec, 0, sys.IovMax), remote: make([]sys.Iovec, 0, sys.IovMax)}
}

// copyNow copies a small op on the caller's thread.
func (m *mover) copyNow(op *fabric.Op, l *loan) error {
	s := slices.Get().(*slice)
	defer slices.Put(s)
	w := newWalk(op, l.base)
	for w.left > 0 {
		w.next(s, inlineBytes)
		if err := m.copySlice(op.Kind, l, s); err != nil {
			return err
		}
	}
	return nil
}

// touch is a copy of nothing: it only finds out whether the loan still stands.
func (m *mover) touch(l *loan) error {
	if err := m.enter(l); err != nil {
		return err
	}
	m.leave(l)
	return nil
}

// enter passes everything that may forbid a copy: this side stopped, the region is closed, the peer lends no more.
func (m *mover) enter(l *loan) error {
	if m.stopping.Load() {
		return m.stopCause()
	}
	if !l.use.enter() {
		return l.revoked()
	}
	if !fenceEnter(m.notifier.ring.mem) {
		l.use.leave()
		return fmt.Errorf("%s closed the connection: %w", m.ep.Peer(), fabric.ErrConnReset)
	}
	return nil
}

func (m *mover) leave(l *loan) {
	fenceLeave(m.notifier.ring.mem)
	l.use.leave()
}

// copyJob is the pool's order.
func (m *mover) copyJob(j *job, s *slice) error { return m.copySlice(j.op.Kind, j.loan, s) }

// copySlice moves one slice.
func (m *mover) copySlice(kind fabric.OpKind, l *loan, s *slice) error {
	if err := m.enter(l); err != nil {
		return err
	}
	defer m.leave(l)
	pid := m.greet.reach.pid
	var moved int
	var err error
	switch {
	case m.greet.reach.way == wayMemmove && kind == fabric.OpRead:
		moved, err = sys.Copy(s.local, s.remote)
	case m.greet.reach.way == wayMemmove:
		moved, err = sys.Copy(s.remote, s.local)
	case kind == fabric.OpRead:
		moved, err = m.vm.read(pid, s.local, s.remote)
	default:
		moved, err = m.vm.write(pid, s.local, s.remote)
	}
	if err == nil && uint64(moved) == s.n {
		return nil
	}
	return m.explain(kind, l, s, err)
}

// explain turns the kernel's answer into words. The lists of s are used up to the place where the copy stopped.
func (m *mover) explain(kind fabric.OpKind, l *loan, s *slice, err error) error {
	peer, pid := m.ep.Peer(), m.greet.reach.pid
	switch {
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%v region %d: process %d of %s is gone: %w", kind, l.key.ID, pid, peer, fabric.ErrConnReset)
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%v region %d: process %d of %s may not be reached any more: %w", kind, l.key.ID, pid, peer, fabric.ErrPerm)
	case errors.Is(err, syscall.EFAULT) && !mapped(s.local):
		return fmt.Errorf("%v region %d: the local buffer is not mapped: was it freed before the op ended? %w", kind, l.key.ID, fabric.Errno(syscall.EFAULT))
	case errors.Is(err, syscall.EFAULT):
		return fmt.Errorf("%v: the buffer of region %d is not mapped in process %d of %s: did it free that memory? %w", kind, l.key.ID, pid, peer, fabric.Errno(syscall.EFAULT))
	case err == nil:
		err = fabric.ErrOther
	}
	return fmt.Errorf("%v region %d in process %d of %s: %w", kind, l.key.ID, pid, peer, err)
}

// mapped asks the kernel whether each page at the entries of iov can be read.
func mapped(iov []sys.Iovec) bool {
	const page = 4096
	var b [1]byte
	here := at(b[:])
	for _, v := range iov {
		for off := uint64(0); off < v.Len; off += page - (v.Addr+off)%page {
			there := []sys.Iovec{{Addr: v.Addr + off, Len: 1}}
			if _, err := sys.VMRead(os.Getpid(), append(here[:0:0], here...), there); err != nil {
				return false
			}
		}
	}
	return true
}
