// SPDX-License-Identifier: MIT

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime"

	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/native/abi"
)

// Exclude leaves ranks out from now on: no rank waits for them or sends to them, and choices of
// their experts have no destination.
//
// No handshake is needed, because the numbers of calls continue from a multiple of
// 1 << abi.EPEpochShift that all remaining ranks reach by counting exclusions. So the next dispatch
// waits until all of them have entered it, whatever each saw of the calls before.
func (s *Side) Exclude(ranks []int) error {
	mask := uint64(0)
	for _, rank := range ranks {
		if rank < 0 || rank >= s.cfg.WorldSize || rank == s.cfg.Rank {
			return fmt.Errorf("exclude rank %d on rank %d of %d: %w", rank, s.cfg.Rank, s.cfg.WorldSize, plan.ErrConfig)
		}
		mask |= 1 << (rank & 63)
	}
	switch {
	case s.state.Closed():
		return fmt.Errorf("exclude ranks: the op is closed: %w", plan.ErrState)
	case s.hosts != nil:
		return fmt.Errorf("exclude ranks of an op with ranks on several hosts: %w", errors.ErrUnsupported)
	}
	if err := s.exclude(mask); err != nil {
		return s.state.Break(fmt.Errorf("exclude ranks %v: %w", ranks, err))
	}
	return nil
}

// Excluded returns how many ranks are left out.
func (s *Side) Excluded() int { return bits.OnesCount64(s.excluded.mask()) }

func (s *Side) exclude(mask uint64) error {
	if err := s.settle(); err != nil {
		return err
	}
	number := uint64(s.excluded.add(mask)) << abi.EPEpochShift
	if err := s.restart(number); err != nil {
		return err
	}
	s.notice.clear()
	s.last, s.health.faults.reported = lastDispatch{}, 0
	s.state.Repair()
	return nil
}

// restart makes the numbers of calls continue from number, and sets this rank's Pulled on the
// remaining ranks, because it reads the rows of no rank any more.
func (s *Side) restart(number uint64) error {
	pulled := binary.LittleEndian.AppendUint64(nil, number<<plan.SignatureBits)
	progress := abi.EPProgress{Dispatches: number, Combines: number}
	op := s.kernelOp()
	t := s.aside
	err := errors.Join(
		t.Copy(s.at.progress, memory.AddrOf(abi.Bytes(&progress)), abi.EPProgressBytes),
		t.Set(s.Received(), 0, plan.Int32Bytes),
		t.Copy(s.at.op, memory.AddrOf(abi.Bytes(&op)), abi.EPOpBytes))
	line := s.layout.Line(s.layout.Pulled, s.cfg.Rank)
	for pe := range s.cfg.WorldSize {
		if s.excluded.mask()>>pe&1 == 0 && err == nil {
			err = t.Copy(s.world.Ptr(s.base, pe)+line, memory.AddrOf(pulled), uint64(len(pulled)))
		}
	}
	if err == nil {
		err = s.wait(t)
	}
	runtime.KeepAlive(pulled)
	runtime.KeepAlive(&progress)
	runtime.KeepAlive(&op)
	return err
}
