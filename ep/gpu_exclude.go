// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime"

	"mori/core/bootstrap"
	"mori/core/memory"
	"mori/ep/internal/plan"
)

// epochBits are those of a call's number that count calls; above them are exclusions.
const epochBits = 32

// Exclude leaves ranks out from now on: nobody waits for them, nothing is sent to them, and choices
// of their experts go nowhere. An op that is broken because they did not come goes on with those
// that are left. These all call it, with the same ranks, equally often; it waits for none of them,
// but for this rank's own work. Results of calls that had failed are not to be used, nor routes
// from before. Where the op is on host memory it is refused.
//
// What makes it safe without a meeting: the numbers of calls go on from a multiple of 1 <<
// epochBits that all reach by counting exclusions, so that the next dispatch waits until all that
// are left have come to it, whatever each had seen of the calls before.
func (o *Op) Exclude(ranks []int) error {
	mask := uint64(0)
	for _, rank := range ranks {
		if rank < 0 || rank >= o.cfg.WorldSize || rank == o.cfg.Rank {
			return fmt.Errorf("exclude rank %d on rank %d of %d: %w", rank, o.cfg.Rank, o.cfg.WorldSize, ErrConfig)
		}
		mask |= 1 << (rank & 63)
	}
	switch {
	case o.base == 0:
		return fmt.Errorf("exclude ranks: the op is closed: %w", ErrState)
	case o.gpu == nil:
		return fmt.Errorf("exclude ranks of an op on host memory, whose waits end for good when a rank has died: %w", errors.ErrUnsupported)
	}
	if o.gpu.hosts != nil {
		return fmt.Errorf("exclude ranks of an op with ranks on several hosts: %w", errors.ErrUnsupported)
	}
	if err := o.gpu.exclude(mask); err != nil {
		return o.breaks(fmt.Errorf("exclude ranks %v: %w", ranks, err))
	}
	return nil
}

// Excluded is how many ranks are left out.
func (o *Op) Excluded() int {
	if o.gpu == nil {
		return 0
	}
	return bits.OnesCount64(o.gpu.dead)
}

func (g *gpuSide) exclude(mask uint64) error {
	if err := g.settle(); err != nil {
		return err
	}
	g.epoch++
	g.op.mu.Lock()
	g.dead |= mask
	g.op.mu.Unlock()
	o := g.op
	number := uint64(g.epoch) << epochBits
	pulled := binary.LittleEndian.AppendUint64(nil, number<<plan.SignatureBits)
	counters := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, number), number)
	told := g.opBytes(g.limit())
	s := g.aside
	err := errors.Join(
		s.Set(g.at.progress, 0, progressBytes), s.Copy(g.at.progress, memory.AddrOf(counters), uint64(len(counters))),
		s.Set(o.Received(), 0, plan.Int32Bytes), s.Copy(g.at.op, memory.AddrOf(told), uint64(len(told))))
	for pe := range o.cfg.WorldSize {
		if g.dead>>pe&1 == 0 && err == nil {
			// This rank reads nobody's rows any more.
			err = s.Copy(o.world.Ptr(o.base, pe)+o.layout.Line(o.layout.Pulled, o.cfg.Rank), memory.AddrOf(pulled), uint64(len(pulled)))
		}
	}
	if err == nil {
		err = g.wait(s)
	}
	runtime.KeepAlive(pulled)
	runtime.KeepAlive(counters)
	runtime.KeepAlive(told)
	if err != nil {
		return err
	}
	clear(memory.Bytes(g.notice.Addr(), noticeBytes))
	g.tokens, g.weights, g.told = 0, false, 0
	o.mu.Lock()
	o.broken = nil
	o.mu.Unlock()
	return nil
}

// lost is that a rank which is not left out has died, as the processes of the world noticed.
func (g *gpuSide) lost() error {
	err := g.op.world.Failed()
	if err == nil || g.dead != 0 && g.leavesOut(err) {
		return nil
	}
	return err
}

// leavesOut says whether an error is about a rank that is left out.
func (g *gpuSide) leavesOut(err error) bool {
	var gone *bootstrap.RankError
	return errors.As(err, &gone) && gone.Rank >= 0 && gone.Rank < mostRanks && g.dead>>gone.Rank&1 != 0
}
