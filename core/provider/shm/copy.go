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

// sliceLists are the lists of messages that are pulled by whoever finds them. A call through
// vmCalls would move lists on the stack to the heap each time.
var sliceLists = sync.Pool{New: func() any { return newSlice() }}

func newSlice() *slice {
	return &slice{local: make([]sys.Iovec, 0, sys.IovMax), remote: make([]sys.Iovec, 0, sys.IovMax)}
}

// touch is a copy of nothing: it only finds out whether the grant still holds.
func (dp *dataPath) touch(l *regionGrant) error {
	if err := dp.enter(l); err != nil {
		return err
	}
	dp.leave(l)
	return nil
}

// enter passes everything that may forbid a copy: this side stopped, the region is closed, the peer
// admits no more copies.
func (dp *dataPath) enter(l *regionGrant) error {
	if dp.stopping.Load() {
		return dp.stopCause()
	}
	if !l.Use.Enter() {
		return revoked(l)
	}
	if !fenceOf(dp.notifier.ring.mem).Enter() {
		l.Use.Leave()
		return local.OpFault(fabric.ErrConnReset, "%s closed the connection", dp.ep.Peer())
	}
	return nil
}

func (dp *dataPath) leave(l *regionGrant) {
	fenceOf(dp.notifier.ring.mem).Leave()
	l.Use.Leave()
}

// copyJob is the pool's order.
func (dp *dataPath) copyJob(j *job, s *slice) error {
	if j.grant == nil {
		return dp.pullSlice(s)
	}
	return dp.copySlice(j.op.Kind, j.grant, s)
}

// copySlice moves one slice.
func (dp *dataPath) copySlice(kind fabric.OpKind, l *regionGrant, s *slice) error {
	if err := dp.enter(l); err != nil {
		return err
	}
	defer dp.leave(l)
	moved, err := dp.move(kind, s)
	if err == nil && uint64(moved) == s.n {
		return nil
	}
	return dp.explain(l, s, err)
}

// move copies a slice between the two processes. The system calls name the peer by its pid, which
// is somebody else's soon after its end, so the pidfd is asked before and after. A descriptor of
// /proc/PID/mem would hold the address space itself, but it writes to memory without the right to
// be written, and takes 145 us per MiB in place of 86.
func (dp *dataPath) move(kind fabric.OpKind, s *slice) (moved int, err error) {
	r := &dp.greet.reach
	if r.way == wayMemmove {
		if kind == fabric.OpRead {
			return sys.CopySelf(s.local, s.remote)
		}
		return sys.CopySelf(s.remote, s.local)
	}
	if dp.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	if kind == fabric.OpRead {
		moved, err = dp.vm.read(r.pid, s.local, s.remote)
	} else {
		moved, err = dp.vm.write(r.pid, s.local, s.remote)
	}
	if dp.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	return moved, err
}

// explain turns the kernel's answer into words. The lists of s are used up to the place where the
// copy stopped.
func (dp *dataPath) explain(l *regionGrant, s *slice, err error) error {
	where := fmt.Sprintf("region %d in process %d of %s", l.Key.ID, dp.greet.reach.pid, dp.ep.Peer())
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
