// SPDX-License-Identifier: MIT

package ep

import (
	"cmp"
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

func (g *gpuSide) word32(off uint64) uint32 { return memory.Load32(g.notice.Addr() + off) }
func (g *gpuSide) word64(off uint64) uint64 { return memory.Load64(g.notice.Addr() + off) }

// trouble is why the op is broken, nil if it is not. A rank that has died says more than the wait
// for it that ended.
func (g *gpuSide) trouble() error {
	switch lost := g.lost(); {
	case lost == nil:
		return g.fault()
	case g.word32(noticeFault) == faultMismatch:
		return cmp.Or(g.fault(), lost)
	default:
		return lost
	}
}

// fault is why a kernel gave the op up, nil if none did.
func (g *gpuSide) fault() error {
	switch g.word32(noticeFault) {
	case faultAborted:
		return fmt.Errorf("the calls of rank %d did not end in time and were aborted: %w", g.op.cfg.Rank, ErrState)
	case faultTimeout, faultMismatch, faultNetwork:
		if g.word32(noticeReady) == 0 {
			return nil // another lane is still writing why
		}
		return g.waited()
	case faultCounts:
		return fmt.Errorf("dispatch of rank %d: %w", g.op.cfg.Rank, ErrCounts)
	case faultRows:
		return fmt.Errorf("combine of rank %d: it was given fewer rows than the %d that the dispatch brought: %w", g.op.cfg.Rank, int32(g.word32(noticeRows)), ErrShape)
	}
	return nil
}

// waited is what a wait that gave up was about.
func (g *gpuSide) waited() error {
	l, c := &g.op.layout, &g.op.cfg
	off := g.word64(noticeAddress) - g.op.base
	act := "wait"
	for _, f := range []struct {
		act  string
		flag Region
	}{{"dispatch", l.Published}, {"rows of dispatch", l.Arrived}, {"combine", l.Ready}, {"end of combine", l.Pulled}} {
		if off >= f.flag.Offset && off < f.flag.End() {
			act = f.act
		}
	}
	act = cmp.Or(g.hosts.act(g.word64(noticeAddress)), act)
	expected, seen, peer := g.word64(noticeExpected), g.word64(noticeSeen), g.word32(noticePeer)
	number := expected >> plan.SignatureBits
	if g.word32(noticeFault) == faultNetwork {
		return fmt.Errorf("%s %d of rank %d: rank %d, on another host, is not reached any more: %w", act, number, c.Rank, peer, g.op.world.RemoteStatus(int(peer), seen))
	}
	if g.word32(noticeFault) == faultMismatch {
		return fmt.Errorf("%s %d: rank %d was called with another shape or type of rows than rank %d (stamp %#x, not %#x): %w",
			act, number, peer, c.Rank, seen&(1<<plan.SignatureBits-1), expected&(1<<plan.SignatureBits-1), ErrMismatch)
	}
	return fmt.Errorf("%s %d of rank %d: these have not come: rank %d (expected %d, seen %d): %w", act, number, c.Rank, peer, number, seen>>plan.SignatureBits, shmem.ErrTimeout)
}

// overflow is a *CapError if a dispatch overflowed that nobody was told of.
func (g *gpuSide) overflow() error {
	number := g.word64(noticeOverflowed)
	if number == g.told {
		return nil
	}
	g.told = number
	each := func(i uint64) int { return int(int32(g.word32(noticeOverflow + 4*i))) }
	return &CapError{Source: g.op.cfg.Rank, Dest: each(0), Rows: each(1), Used: each(2), Cap: g.op.cfg.MaxRecv()}
}
