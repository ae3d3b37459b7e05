// SPDX-License-Identifier: MIT

package ep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"mori/core/memory"
	"mori/ep/internal/gpu"
	"mori/ep/internal/plan"
	"mori/ep/internal/plan/plantest"
	"mori/ep/internal/view"
	"mori/shmem"
)

// If hosts sum, sums of whole numbers are those of host memory, to the last bit, for any size of
// chunks.
func TestHostsSum(t *testing.T) {
	for _, chunk := range []int{1, 0} {
		t.Run(fmt.Sprintf("chunks of %d bytes", chunk), func(t *testing.T) {
			onHosts(t, 2, hostsConfig(4, KernelInterNodeV1LL), Options{Threads: 1, ChunkBytes: chunk}, func(j *gpuJob) error {
				if !j.gpu.gpu.HostsSum() {
					return errors.New("hosts do not sum")
				}
				if got, want := j.gpu.LaunchOf(false, Launch{Blocks: 4, Warps: 16}, 3, 16), (Launch{Blocks: 4, Warps: gpu.MostThreads / j.dev.Warp}); got != want {
					return fmt.Errorf("a combine is launched as %v, want %v", got, want)
				}
				return sumsOnly(j, 4)
			})
		})
	}
	t.Run("three hosts", func(t *testing.T) {
		onHosts(t, 2, hostsConfig(6, KernelInterNodeV1), Options{Threads: 1, ChunkBytes: 300}, func(j *gpuJob) error { return sumsOnly(j, 2) })
	})
}

// sumsOnly runs rounds in which hosts sum, of all types and routings.
func sumsOnly(j *gpuJob, count int) error {
	alike, own := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(uint64(j.gpu.cfg.Rank), 5))
	for i := range count {
		d := drawRound(alike, j.gpu.cfg)
		d.out, d.replay = []DType{BFloat16, Float32}[i%2], false
		if err := errors.Join(j.round(d, own), j.settle()); err != nil {
			return fmt.Errorf("round %d, %+v: %w", i, d, err)
		}
	}
	return nil
}

func TestSumsOfHostsAreWithinRounding(t *testing.T) {
	for _, dtype := range []DType{BFloat16, Float32} {
		t.Run(dtype.String(), func(t *testing.T) {
			onHosts(t, 2, hostsConfig(4, KernelInterNodeV1), Options{Threads: 1}, func(j *gpuJob) error { return j.nearly(dtype) })
		})
	}
}

// nearly sums rows of numbers between 0 and 1 on both ops. A host's part, at most 2, is rounded to
// the type once, and a sum, at most 4, too.
func (j *gpuJob) nearly(t DType) error {
	c, r := j.gpu.cfg, rand.New(rand.NewPCG(uint64(j.gpu.cfg.Rank), 6))
	n, half := c.MaxNumInpToken, map[DType]float64{BFloat16: 0x1p-9, Float32: 0x1p-24}[t]
	indices := plantest.Routings[0].Choices(r, expertsOf(c), n*c.TopK)
	chosen, rows := memory.Bytes(view.Addr(indices), uint64(n*c.TopK*plan.Int32Bytes)), make([]byte, n*c.HiddenDim*4)
	h := Batch{N: n, Hidden: c.HiddenDim, Type: Float32, Input: j.hold(rows), Indices: j.hold(chosen)}
	g := Batch{N: n, Hidden: c.HiddenDim, Type: Float32, Input: j.give(rows), Indices: j.give(chosen)}
	came, err := j.host.Dispatch(h)
	if _, failed := j.gpu.Dispatch(g); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	var made []byte
	for range came * c.HiddenDim {
		bits := math.Float32bits(r.Float32())
		if t == BFloat16 {
			made = binary.LittleEndian.AppendUint16(made, uint16(bits>>16))
		} else {
			made = binary.LittleEndian.AppendUint32(made, bits)
		}
	}
	out := Output{Rows: came, Hidden: c.HiddenDim, Type: t, Input: j.hold(made)}
	err = j.host.Combine(out)
	out.Input = j.give(made)
	if err = errors.Join(err, j.gpu.Combine(out)); err != nil {
		return err
	}
	region, size := j.gpu.layout.CombineOut, uint64(n*c.HiddenDim)*t.Size()
	want, got := floats(memory.Bytes(j.host.Base()+region.Offset, size), t), floats(j.read(j.gpu.Base()+region.Offset, size), t)
	for i := range want {
		if far := math.Abs(got[i] - want[i]); far > half*(2+2*4+2*4) { // and as much again for another order of the sum
			return fmt.Errorf("element %d is %v on the GPU, and %v on the host", i, got[i], want[i])
		}
	}
	return nil
}

// floats returns the elements of a type.
func floats(b []byte, t DType) (all []float64) {
	for i := 0; i < len(b); i += int(t.Size()) {
		bits := uint32(binary.LittleEndian.Uint16(b[i:])) << 16
		if t == Float32 {
			bits = binary.LittleEndian.Uint32(b[i:])
		}
		all = append(all, float64(math.Float32frombits(bits)))
	}
	return all
}

// If a rank does not come, its host names it. The other host, which waits for a sum, names the rank
// that sums.
func TestARankThatHasNoRowsForItsHostIsNamed(t *testing.T) {
	onHosts(t, 2, hostsConfig(4, KernelInterNodeV1), Options{Timeout: time.Second}, func(j *gpuJob) error {
		c := j.gpu.cfg
		indices := make([]int32, c.MaxNumInpToken*c.TopK)
		for i := range indices {
			indices[i] = int32(i % c.TopK % c.WorldSize * c.ExpertsPerRank)
		}
		b := j.ones(c.MaxNumInpToken)
		b.Indices = j.give(memory.Bytes(view.Addr(indices), uint64(len(indices)*plan.Int32Bytes)))
		_, err := j.gpu.Dispatch(b)
		if err = errors.Join(err, j.settle(), j.gpu.Check()); err != nil || c.Rank == 3 {
			return err
		}
		out := Output{Rows: c.MaxRecv(), Hidden: c.HiddenDim, Type: Float32, InPlace: true}
		if err := errors.Join(j.gpu.Combine(out), j.settle()); err != nil {
			return err
		}
		late := []int{2, 3, 3}[c.Rank]
		if err := j.gpu.Check(); !errors.Is(err, shmem.ErrTimeout) || !strings.Contains(err.Error(), fmt.Sprintf("rank %d (expected 1, seen 0)", late)) {
			return fmt.Errorf("combine: %v", err)
		}
		return nil
	})
}

// A host multiplies rows by the factors of its own rank, so all ranks must agree on Weighted.
func TestMismatchOfFactorsIsReported(t *testing.T) {
	onHosts(t, 2, hostsConfig(4, KernelInterNodeV1), Options{Timeout: time.Second}, func(j *gpuJob) error {
		b := j.ones(2)
		b.Weights = b.Input
		if _, err := j.gpu.Dispatch(b); err != nil {
			return err
		}
		out := Output{Rows: j.gpu.cfg.MaxRecv(), Hidden: b.Hidden, Type: Float32, InPlace: true, Weighted: j.gpu.cfg.Rank == 0}
		err := errors.Join(j.gpu.Combine(out), j.settle())
		if err = errors.Join(err, j.gpu.Check()); !errors.Is(err, ErrMismatch) && !errors.Is(err, shmem.ErrTimeout) || j.gpu.cfg.Rank < 2 && !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("combine: %v", err)
		}
		return nil
	})
}
