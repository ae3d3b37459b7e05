// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"os"
	"sync"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/provider/internal/local"
)

// sliceLists are the lists of messages that are pulled by whoever finds them. A call through vmCalls would move lists on the stack to the heap each time.
var sliceLists = sync.Pool{New: func() any { return newSlice() }}

func newSlice() *slice {
	return &slice{local: make([]sys.Iovec, 0, sys.IovMax), remote: make([]sys.Iovec, 0, sys.IovMax)}
}

// touch is a copy of nothing: it only finds out whether the loan still stands.
func (m *mover) touch(l *borrowed) error {
	if err := m.enter(l); err != nil {
		return err
	}
	m.leave(l)
	return nil
}

// enter passes everything that may forbid a copy: this side stopped, the region is closed, the peer lends no more.
func (m *mover) enter(l *borrowed) error {
	if m.stopping.Load() {
		return m.stopCause()
	}
	if !l.Use.Enter() {
		return revoked(l)
	}
	if !fenceOf(m.notifier.ring.mem).Enter() {
		l.Use.Leave()
		return local.OpFault(fabric.ErrConnReset, "%s closed the connection", m.ep.Peer())
	}
	return nil
}

func (m *mover) leave(l *borrowed) {
	fenceOf(m.notifier.ring.mem).Leave()
	l.Use.Leave()
}

// copyJob is the pool's order.
func (m *mover) copyJob(j *job, s *slice) error {
	if j.loan == nil {
		return m.pullSlice(s)
	}
	return m.copySlice(j.op.Kind, j.loan, s)
}

// copySlice moves one slice.
func (m *mover) copySlice(kind fabric.OpKind, l *borrowed, s *slice) error {
	if err := m.enter(l); err != nil {
		return err
	}
	defer m.leave(l)
	moved, err := m.move(kind, s)
	if err == nil && uint64(moved) == s.n {
		return nil
	}
	return m.explain(l, s, err)
}

// move copies a slice between the two processes. The system calls name the peer by its pid, which is somebody else's soon after its end, so the
// pidfd is asked before and after. A descriptor of /proc/PID/mem would hold the address space itself, but it writes to memory without the right
// to be written, and takes 145 us per MiB in place of 86.
func (m *mover) move(kind fabric.OpKind, s *slice) (moved int, err error) {
	r := &m.greet.reach
	if r.way == wayMemmove {
		if kind == fabric.OpRead {
			return sys.CopySelf(s.local, s.remote)
		}
		return sys.CopySelf(s.remote, s.local)
	}
	if m.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	if kind == fabric.OpRead {
		moved, err = m.vm.read(r.pid, s.local, s.remote)
	} else {
		moved, err = m.vm.write(r.pid, s.local, s.remote)
	}
	if m.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	return moved, err
}

// explain turns the kernel's answer into words. The lists of s are used up to the place where the copy stopped.
func (m *mover) explain(l *borrowed, s *slice, err error) error {
	where := fmt.Sprintf("region %d in process %d of %s", l.Key.ID, m.greet.reach.pid, m.ep.Peer())
	switch cause := fabric.ErrnoOf(err); {
	case cause == fabric.Errno(syscall.ESRCH):
		return local.OpFault(fabric.ErrConnReset, "%s: the process is gone", where)
	case cause == fabric.ErrPerm:
		return local.OpFault(cause, "%s: the system lets nobody in any more", where)
	case cause == fabric.Errno(syscall.EFAULT) && !mapped(s.local):
		return local.OpFault(cause, "the local buffer is not mapped: was it freed before the op ended?")
	case cause == fabric.Errno(syscall.EFAULT):
		return local.OpFault(cause, "%s is not mapped: did it free that memory?", where)
	case cause == 0: // fewer bytes than asked for and no reason given
		return local.OpFault(fabric.ErrOther, "%s: the copy ended early", where)
	default:
		return local.OpFault(cause, "%s", where)
	}
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
