// SPDX-License-Identifier: MIT

package gpu

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"mori/ep/internal/plan"
	"mori/native/abi"
	"mori/shmem"
)

// faults makes errors of what kernels reported.
type faults struct {
	*buffers
	world    *shmem.World
	cfg      *plan.Config
	layout   *plan.Layout
	hosts    *hosts
	reported uint64 // the last dispatch whose overflow has been returned
}

// fault returns why a kernel gave up, or nil if none did.
func (f *faults) fault() error {
	n := &f.notice
	switch n.fault() {
	case abi.EPFaultAborted:
		return fmt.Errorf("the calls of rank %d did not end in time and were aborted: %w", f.cfg.Rank, plan.ErrState)
	case abi.EPFaultTimeout, abi.EPFaultMismatch, abi.EPFaultNetwork:
		if atomic.LoadUint32(&n.Wait.Ready) == 0 {
			return nil // another lane is still writing the details
		}
		return f.waited()
	case abi.EPFaultCounts:
		return fmt.Errorf("dispatch of rank %d: %w", f.cfg.Rank, plan.ErrCounts)
	case abi.EPFaultRows:
		return fmt.Errorf("combine of rank %d: the input has fewer rows than the %d that the dispatch received: %w",
			f.cfg.Rank, atomic.LoadInt32(&n.Rows), plan.ErrShape)
	}
	return nil
}

// mismatch reports whether a kernel gave up because ranks made different calls.
func (f *faults) mismatch() bool { return f.notice.fault() == abi.EPFaultMismatch }

// waited returns an error about a wait that ended without success.
func (f *faults) waited() error {
	n, c := &f.notice, f.cfg
	w := &n.Wait
	act := f.act(atomic.LoadUint64(&w.Address))
	expected, seen, peer := atomic.LoadUint64(&w.Expected), atomic.LoadUint64(&w.Seen), atomic.LoadUint32(&w.Peer)
	number := expected >> plan.SignatureBits
	switch n.fault() {
	case abi.EPFaultNetwork:
		return fmt.Errorf("%s %d of rank %d: rank %d, on another host, is unreachable: %w",
			act, number, c.Rank, peer, f.world.RemoteStatus(int(peer), seen))
	case abi.EPFaultMismatch:
		const mask = 1<<plan.SignatureBits - 1
		return fmt.Errorf("%s %d: rank %d was called with another shape or type of rows than rank %d (signature %#x, not %#x): %w",
			act, number, peer, c.Rank, seen&mask, expected&mask, plan.ErrMismatch)
	}
	return fmt.Errorf("%s %d of rank %d: no data arrived from rank %d (expected %d, seen %d): %w",
		act, number, c.Rank, peer, number, seen>>plan.SignatureBits, shmem.ErrTimeout)
}

// act returns the part of a call that waits for the word at an address.
func (f *faults) act(at uint64) string {
	l, off, act := f.layout, at-f.base, "wait"
	for _, part := range []struct {
		act  string
		flag plan.Region
	}{
		{"dispatch", l.Published}, {"rows of dispatch", l.Arrived},
		{"combine", l.Ready}, {"end of combine", l.Pulled},
	} {
		if off >= part.flag.Offset && off < part.flag.End() {
			act = part.act
		}
	}
	return cmp.Or(f.hosts.act(at), act)
}

// overflow returns a *plan.CapError if a dispatch overflowed, once for each dispatch.
func (f *faults) overflow() error {
	n := &f.notice
	number := atomic.LoadUint64(&n.Overflowed)
	if number == f.reported {
		return nil
	}
	f.reported = number
	value := func(i int) int { return int(atomic.LoadInt32(&n.Overflow[i])) }
	return &plan.CapError{Source: f.cfg.Rank, Dest: value(0), Rows: value(1), Used: value(2), Cap: f.cfg.MaxRecv()}
}
