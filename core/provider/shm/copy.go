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
	"mori/core/internal/sys/pages"
	"mori/core/internal/sys/vm"
	"mori/core/provider/internal/local"
)

// sliceLists reuses the lists of messages that are pulled by the goroutine that finds them. Lists
// on the stack would be moved to the heap at each call through vmCalls.
var sliceLists = sync.Pool{New: func() any { return newSlice() }}

func newSlice() *slice {
	return &slice{local: make([]sys.Iovec, 0, sys.IovMax), remote: make([]sys.Iovec, 0, sys.IovMax)}
}

// A copies copies bytes between the memories of the two processes, for one data path.
type copies struct {
	path   *dataPath
	vm     vmCalls
	sample struct { // see sample.go
		every uint64
		ops   atomic.Uint64
	}
}

// touch copies nothing. It only checks whether the grant is still valid.
func (c *copies) touch(l *regionGrant) error {
	if err := c.enter(l); err != nil {
		return err
	}
	c.leave(l)
	return nil
}

// enter makes all checks that may forbid a copy: this side stopped, the region is closed, or the
// peer admits no more copies.
func (c *copies) enter(l *regionGrant) error {
	if c.path.stopping.Load() {
		return c.path.stopCause()
	}
	if !l.Use.Enter() {
		return revoked(l)
	}
	if !c.path.notifier.ring.Fence().Enter() {
		l.Use.Leave()
		return local.OpFault(fabric.ErrConnReset, "%s closed the connection", c.path.ep.Peer())
	}
	return nil
}

func (c *copies) leave(l *regionGrant) {
	c.path.notifier.ring.Fence().Leave()
	l.Use.Leave()
}

// now copies a whole op on the caller's thread, if it fits one slice and all its pages are in
// memory on both sides. Otherwise it copies nothing and returns false.
func (c *copies) now(op *fabric.Op, l *regionGrant, w walk) (done bool, err error) {
	s := sliceLists.Get().(*slice)
	defer sliceLists.Put(s)
	w.next(s, w.left)
	if w.left > 0 || !pages.Resident(s.local, &s.resident) || !c.path.greet.present(s.remote, s) {
		return false, nil
	}
	return true, c.copySlice(op.Kind, l, s)
}

// copySlice copies one slice.
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

// move copies a slice between the two processes. The system calls name the peer by its pid. Another
// process may get that pid soon after the peer's end, so move checks the pidfd before and after the
// call. A descriptor of /proc/PID/mem would refer to the address space itself. But it also writes
// to read-only memory, and takes 145 us per MiB instead of 86.
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

// explain turns the kernel's error into a message. The lists of s have been consumed up to the
// point where the copy stopped.
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
	case cause == 0: // a short copy without an error
		return local.OpFault(fabric.ErrOther, "%s: the copy ended early", where)
	default:
		return local.OpFault(cause, "%s", where)
	}
}

// mapped asks the kernel whether each page of iov can be read.
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

// A place is a position in a list of segments: an entry and a byte offset inside it. Entry 0 is the
// Op's own segment; entry i is number i-1 of the rest.
type place struct {
	entry int
	off   uint64
}

// A walk cuts an op into slices. It makes no system calls. The zero places are the start.
type walk struct {
	op            *fabric.Op
	base          uint64 // start address of the region in the peer
	local, remote place
	left          uint64 // bytes not yet assigned to a slice
}

// newWalk returns a walk at the first of the op's n bytes.
func newWalk(op *fabric.Op, n, base uint64) walk { return walk{op: op, base: base, left: n} }

// A slice is the work of one system call: two lists of equal length, in memory that its worker
// reuses.
type slice struct {
	local, remote []sys.Iovec
	n             uint64

	// Scratch memory of copies.now.
	resident pages.Map
	entries  [(inlineBytes/minPage + 1) * local.PageEntry]byte
}

// next fills s with up to limit bytes, and as many entries on each side as s has room for.
func (w *walk) next(s *slice, limit uint64) {
	start := w.local
	s.local, s.n = fill(localSegs{w.op}, &w.local, s.local[:0], min(limit, w.left))
	var got uint64
	s.remote, got = fill(remoteSegs{w.op, w.base}, &w.remote, s.remote[:0], s.n)
	if got < s.n { // the remote list ran out of entries first
		w.local = start
		s.local, s.n = fill(localSegs{w.op}, &w.local, s.local[:0], got)
	}
	w.left -= s.n
}

// segs is a list of at least one segment.
type segs interface {
	at(i int) (addr, n uint64)
	len() int
}

type localSegs struct{ op *fabric.Op }

func (l localSegs) len() int { return 1 + len(l.op.More) }

func (l localSegs) at(i int) (addr, n uint64) {
	if i == 0 {
		return l.op.Seg.Addr, l.op.Seg.Len
	}
	return l.op.More[i-1].Addr, l.op.More[i-1].Len
}

type remoteSegs struct {
	op   *fabric.Op
	base uint64
}

func (r remoteSegs) len() int { return 1 + len(r.op.RMore) }

func (r remoteSegs) at(i int) (addr, n uint64) {
	if i == 0 {
		return r.base + r.op.RSeg.Addr, r.op.RSeg.Len
	}
	return r.base + r.op.RMore[i-1].Addr, r.op.RMore[i-1].Len
}

// fill appends up to limit bytes, starting at p, to dst without growing dst, and advances p.
func fill[S segs](list S, p *place, dst []sys.Iovec, limit uint64) ([]sys.Iovec, uint64) {
	n := uint64(0)
	for n < limit && len(dst) < cap(dst) && p.entry < list.len() {
		addr, size := list.at(p.entry)
		if take := min(size-p.off, limit-n); take > 0 {
			dst = append(dst, sys.Iovec{Addr: addr + p.off, Len: take})
			n += take
			p.off += take
		}
		if p.off == size {
			p.entry, p.off = p.entry+1, 0
		}
	}
	return dst, n
}
