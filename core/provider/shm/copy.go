// SPDX-License-Identifier: MIT

package shm

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"mori/core/fabric"
	"mori/core/internal/sys"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/local"
)

// sliceLists are the lists of messages that are pulled by whoever finds them. A call through
// vmCalls would move lists on the stack to the heap each time.
var sliceLists = sync.Pool{New: func() any { return newSlice() }}

func newSlice() *slice {
	return &slice{local: make([]sys.Iovec, 0, sys.IovMax), remote: make([]sys.Iovec, 0, sys.IovMax)}
}

// A copies moves bytes between the memories of the two processes, for one data path.
type copies struct {
	path   *dataPath
	vm     vmCalls
	sample struct { // see sample.go
		every uint64
		ops   atomic.Uint64
	}
}

// touch is a copy of nothing: it only finds out whether the grant still holds.
func (c *copies) touch(l *regionGrant) error {
	if err := c.enter(l); err != nil {
		return err
	}
	c.leave(l)
	return nil
}

// enter passes everything that may forbid a copy: this side stopped, the region is closed, the peer
// admits no more copies.
func (c *copies) enter(l *regionGrant) error {
	if c.path.stopping.Load() {
		return c.path.stopCause()
	}
	if !l.Use.Enter() {
		return revoked(l)
	}
	if !fenceOf(c.path.notifier.ring.mem).Enter() {
		l.Use.Leave()
		return local.OpFault(fabric.ErrConnReset, "%s closed the connection", c.path.ep.Peer())
	}
	return nil
}

func (c *copies) leave(l *regionGrant) {
	fenceOf(c.path.notifier.ring.mem).Leave()
	l.Use.Leave()
}

// copyJob is the pool's order.
func (dp *dataPath) copyJob(j *job, s *slice) error {
	if j.grant == nil {
		return dp.copies.pullSlice(s)
	}
	return dp.copies.copySlice(j.op.Kind, j.grant, s)
}

// copySlice moves one slice.
func (c *copies) copySlice(kind fabric.OpKind, l *regionGrant, s *slice) error {
	if err := c.enter(l); err != nil {
		return err
	}
	defer c.leave(l)
	moved, err := c.move(kind, s)
	if err == nil && uint64(moved) == s.n {
		return nil
	}
	return c.explain(l, s, err)
}

// move copies a slice between the two processes. The system calls name the peer by its pid, which
// is somebody else's soon after its end, so the pidfd is asked before and after. A descriptor of
// /proc/PID/mem would hold the address space itself, but it writes to memory without the right to
// be written, and takes 145 us per MiB in place of 86.
func (c *copies) move(kind fabric.OpKind, s *slice) (moved int, err error) {
	r := &c.path.greet.reach
	if r.way == wayMemmove {
		if kind == fabric.OpRead {
			return vm.CopySelf(s.local, s.remote)
		}
		return vm.CopySelf(s.remote, s.local)
	}
	if c.path.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	if kind == fabric.OpRead {
		moved, err = c.vm.read(r.pid, s.local, s.remote)
	} else {
		moved, err = c.vm.write(r.pid, s.local, s.remote)
	}
	if c.path.greet.peer.Dead() {
		return 0, syscall.ESRCH
	}
	return moved, err
}

// explain turns the kernel's answer into words. The lists of s are used up to the place where the
// copy stopped.
func (c *copies) explain(l *regionGrant, s *slice, err error) error {
	where := fmt.Sprintf("region %d in process %d of %s", l.Key.ID, c.path.greet.reach.pid, c.path.ep.Peer())
	switch cause := fabric.ErrnoOf(err); {
	case cause == fabric.Errno(syscall.ESRCH):
		return local.OpFault(fabric.ErrConnReset, "%s: the process has exited", where)
	case cause == fabric.ErrPerm:
		return local.OpFault(cause, "%s: the system now refuses access", where)
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
			if _, err := vm.Read(os.Getpid(), append(here[:0:0], here...), there); err != nil {
				return false
			}
		}
	}
	return true
}
