// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// numbered returns a batch of n tokens for expert 0 of every rank. Their elements have the number
// of the rank and of the token.
func (j *gpuJob) numbered(n int) Batch {
	c := j.gpu.cfg
	rows, chosen := []byte{}, []byte{}
	for token := range n {
		for range c.HiddenDim {
			rows = binary.LittleEndian.AppendUint16(rows, bf16(10*c.Rank+token))
		}
		for k := range c.TopK {
			chosen = binary.LittleEndian.AppendUint32(chosen, uint32(k*c.ExpertsPerRank))
		}
	}
	return Batch{N: n, Hidden: c.HiddenDim, Type: BFloat16, Input: j.give(rows), Indices: j.give(chosen)}
}

// bf16 returns a small number as bfloat16.
func bf16(n int) uint16 {
	if n == 0 {
		return 0
	}
	e := 0
	for n>>e > 1 {
		e++
	}
	return uint16((127+e)<<7 | (n<<(7-min(e, 7))>>(max(e, 7)-7))&0x7f)
}

// roundTrip dispatches and combines n tokens of each of the remaining ranks.
func (j *gpuJob) roundTrip(n, left int) error {
	c := j.gpu.cfg
	if _, err := j.gpu.Dispatch(j.numbered(n)); err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	rows, err := j.gpu.Rows()
	if err != nil || rows != n*left {
		return fmt.Errorf("%d rows, want %d: %w", rows, n*left, err)
	}
	out := Output{Rows: rows, Hidden: c.HiddenDim, Type: BFloat16, Input: j.gpu.Base() + j.gpu.layout.DispatchOut.Offset}
	if err := errors.Join(j.gpu.Combine(out), j.settle(), j.gpu.Check()); err != nil {
		return fmt.Errorf("combine: %w", err)
	}
	got := j.read(j.gpu.Base()+j.gpu.layout.CombineOut.Offset, uint64(n*c.HiddenDim*2))
	for token := range n {
		for e := range c.HiddenDim {
			if v, want := binary.LittleEndian.Uint16(got[(token*c.HiddenDim+e)*2:]), bf16(left*(10*c.Rank+token)); v != want {
				return fmt.Errorf("token %d, element %d: %#x, want %#x", token, e, v, want)
			}
		}
	}
	return nil
}

func exclusionConfig(world int) Config {
	c := gpuConfig(world)
	c.TopK = world // one expert of each rank
	return c
}

func TestNoRankWaitsForExcludedRanks(t *testing.T) {
	const silent = 1
	onGPUs(t, exclusionConfig(3), Options{Timeout: 2 * time.Second}, func(j *gpuJob) error {
		if err := j.roundTrip(2, 3); err != nil {
			return err
		}
		if j.gpu.cfg.Rank == silent {
			return nil
		}
		for turn := range 2 { // also when it is excluded already
			_, err := j.gpu.Dispatch(j.numbered(2))
			if err = errors.Join(err, j.settle(), j.gpu.Check()); turn == 0 && !errors.Is(err, shmem.ErrTimeout) {
				return fmt.Errorf("a dispatch without rank %d: %w", silent, err)
			}
			if err := j.gpu.Exclude([]int{silent}); err != nil {
				return err
			}
			if got := j.gpu.Excluded(); got != 1 {
				return fmt.Errorf("%d ranks are left out", got)
			}
			for n := range 4 {
				if err := j.roundTrip(n, 2); err != nil {
					return fmt.Errorf("turn %d, %d tokens: %w", turn, n, err)
				}
			}
		}
		return nil
	})
}

func TestExcludeChecksRanks(t *testing.T) {
	onGPUs(t, exclusionConfig(2), Options{}, func(j *gpuJob) error {
		for _, ranks := range [][]int{{-1}, {2}, {j.gpu.cfg.Rank}} {
			if err := j.gpu.Exclude(ranks); !errors.Is(err, ErrConfig) {
				return fmt.Errorf("ranks %v: %v", ranks, err)
			}
		}
		if err := j.host.Exclude([]int{1 - j.gpu.cfg.Rank}); !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("on host memory: %v", err)
		}
		if got := j.host.Excluded(); got != 0 {
			return fmt.Errorf("on host memory %d ranks are left out", got)
		}
		return j.roundTrip(3, 2)
	})
}

// Counts that no plan makes are reported, as on host memory.
func TestImpossibleCountsAreReportedOnGPUs(t *testing.T) {
	onGPUs(t, exclusionConfig(2), Options{Timeout: 5 * time.Second}, func(j *gpuJob) error {
		b := j.numbered(2)
		if j.gpu.cfg.Rank == 1 {
			l, first := &j.gpu.layout, j.world.Ptr(j.gpu.Base(), 0)
			rowBytes := uint64(b.Hidden) * b.Type.Size()
			mark := plan.Signature(rowBytes, uint64(b.Type))
			var words []byte // in the count matrix of odd dispatches, behind the row of rank 0
			for _, rows := range []uint64{1<<24 - 1, 1} {
				words = binary.LittleEndian.AppendUint64(words, 1<<40|mark<<24|rows)
			}
			return errors.Join(j.stream.Copy(first+l.Counts.At(3, 2*plan.WordBytes), memory.AddrOf(words), uint64(len(words))), j.settle())
		}
		_, err := j.gpu.Dispatch(b)
		if err = errors.Join(err, j.settle(), j.gpu.Check()); !errors.Is(err, ErrCounts) || !strings.Contains(err.Error(), "dispatch of rank 0") {
			return fmt.Errorf("dispatch: %v", err)
		}
		if _, again := j.gpu.Dispatch(b); !errors.Is(again, ErrCounts) || !strings.Contains(again.Error(), "broken") {
			return fmt.Errorf("afterwards: %v", again)
		}
		return nil
	})
}

// Close and Settle wait for the work on all streams, even if the streams have been destroyed.
func TestStreamsMayGoBeforeTheOp(t *testing.T) {
	onGPUs(t, exclusionConfig(2), Options{}, func(j *gpuJob) error {
		before, err := j.dev.NewEvent()
		if err != nil {
			return err
		}
		defer before.Close()
		for range 3 {
			s, err := j.dev.NewStream(device.Normal)
			if err != nil {
				return err
			}
			b := j.numbered(3)
			err = errors.Join(before.Record(j.stream), s.After(before)) // calls of an op must be ordered
			j.gpu.SetStream(s.Handle())
			_, failed := j.gpu.Dispatch(b)
			j.gpu.Leave()
			if err := errors.Join(err, failed, before.Record(s), j.stream.After(before), s.Close()); err != nil {
				return err
			}
			j.gpu.SetStream(j.stream.Handle())
		}
		j.gpu.Settle()
		rows, err := j.gpu.Rows()
		if err != nil || rows != 6 {
			return fmt.Errorf("%d rows came: %w", rows, err)
		}
		return j.settle()
	})
}
