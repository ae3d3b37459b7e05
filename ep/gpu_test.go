// SPDX-License-Identifier: MIT

package ep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/device"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/gpu/gputest"
	"mori/shmem"
)

func gpuConfig(world int) Config {
	c := smallConfig(world)
	c.HiddenDim, c.MaxNumInpToken, c.ScaleDim, c.ScaleTypeSize = 48, 9, 3, 2
	return c
}

// rounds makes both ops do the same, and compares every byte.
func rounds(count int) func(j *gpuJob) error {
	return func(j *gpuJob) error {
		c := j.gpu.cfg
		alike := rand.New(rand.NewPCG(uint64(c.WorldSize), uint64(c.QuantType)))
		own := rand.New(rand.NewPCG(uint64(c.Rank), 9))
		for i := range count {
			d := drawRound(alike, c)
			if err := j.round(d, own); err != nil {
				return fmt.Errorf("round %d, %+v: %w", i, d, err)
			}
			if err := j.settle(); err != nil {
				return err
			}
		}
		return nil
	}
}

func (j *gpuJob) round(d round, r *rand.Rand) error {
	c := j.gpu.cfg
	n := r.IntN(c.MaxNumInpToken + 1)
	indices := d.routing.Choices(r, expertsOf(c), n*c.TopK)
	chosen := memory.Bytes(view.Addr(append(indices, 0)), uint64(n*c.TopK*plan.Int32Bytes))
	rows := randomBytes(r, n*d.hidden*int(d.dtype.Size()))
	weights := make([]float32, n*c.TopK+1)
	for i := range weights {
		weights[i] = r.Float32() - 0.3
		if j.gpu.gpu.HostsSum() {
			weights[i] = float32(r.IntN(4))
		}
	}
	w := memory.Bytes(view.Addr(weights), uint64(n*c.TopK*plan.Float32Bytes))
	scales := randomBytes(r, n*int(j.gpu.layout.ScaleBytes()))
	h := Batch{N: n, Hidden: d.hidden, Type: d.dtype, Input: j.hold(rows), Indices: j.hold(chosen)}
	g := Batch{N: n, Hidden: d.hidden, Type: d.dtype, Input: j.give(rows), Indices: j.give(chosen), Launch: Launch{Blocks: r.IntN(3), Warps: r.IntN(3)}}
	if d.weights {
		h.Weights, g.Weights = j.hold(w), j.give(w)
	}
	if d.scales {
		h.Scales, g.Scales = j.hold(scales), j.give(scales)
	}
	hostRoute, gpuRoute, err := j.dispatch(d, h, g)
	if err != nil {
		return err
	}
	return j.combine(d, hostRoute, gpuRoute, r)
}

// dispatch dispatches on both ops, twice if it is replayed, and returns the routes.
func (j *gpuJob) dispatch(d round, h, g Batch) (hostRoute, gpuRoute *Route, err error) {
	rows, err := j.host.Dispatch(h)
	if err != nil {
		return nil, nil, err
	}
	if err := j.dispatchGPU(d, g); err != nil {
		return nil, nil, err
	}
	if d.replay {
		maps := make([]int32, h.N*j.host.cfg.TopK+1)
		hostRoute = &Route{Slots: j.hold(memory.Bytes(view.Addr(maps), uint64(len(maps)*plan.Int32Bytes))), N: h.N, Rows: rows}
		if err := j.host.Slots(hostRoute.Slots); err != nil {
			return nil, nil, err
		}
		gpuRoute = &Route{Slots: j.give(make([]byte, len(maps)*plan.Int32Bytes)), N: h.N, RowsAt: j.give(make([]byte, 4))}
		if err := errors.Join(j.gpu.Slots(gpuRoute.Slots), j.stream.Copy(gpuRoute.RowsAt, j.gpu.Received(), 4)); err != nil {
			return nil, nil, err
		}
		h.Route, g.Route = hostRoute, gpuRoute
		if rows, err = j.host.Dispatch(h); err != nil {
			return nil, nil, err
		}
		if err := j.dispatchGPU(d, g); err != nil {
			return nil, nil, err
		}
	}
	return hostRoute, gpuRoute, j.compareDispatch(d, h, rows)
}

func (j *gpuJob) dispatchGPU(d round, g Batch) error {
	if d.split {
		if err := j.gpu.DispatchSend(g); err != nil {
			return err
		}
		if err := j.gpu.DispatchSend(g); !errors.Is(err, ErrState) {
			return fmt.Errorf("send after send: %v", err)
		}
		_, err := j.gpu.DispatchRecv()
		return err
	}
	_, err := j.gpu.Dispatch(g)
	return err
}

func (j *gpuJob) compareDispatch(d round, h Batch, rows int) error {
	l, n := &j.gpu.layout, uint64(rows)
	if got, err := j.gpu.Rows(); err != nil || got != rows {
		return fmt.Errorf("%d rows came to the GPU, and %d to the host: %w", got, rows, err)
	}
	err := errors.Join(j.same("rows", l.DispatchOut, n*uint64(d.hidden)*d.dtype.Size()), j.same("indices", l.DispatchOutIndices, n*l.WeightBytes()),
		j.same("positions", l.SrcPositions, n*plan.Int32Bytes))
	if d.weights {
		err = errors.Join(err, j.same("weights", l.DispatchOutWeights, n*l.WeightBytes()))
	}
	if d.scales {
		err = errors.Join(err, j.same("scales", l.DispatchOutScales, n*l.ScaleBytes()))
	}
	if err := errors.Join(err, j.host.CountLocal(), j.gpu.CountLocal()); err != nil {
		return err
	}
	experts := uint64(j.gpu.cfg.ExpertsPerRank) * plan.Int32Bytes
	if got, want := j.read(j.gpu.LocalCounts(), experts), memory.Bytes(j.host.LocalCounts(), experts); string(got) != string(want) {
		return fmt.Errorf("counts of experts: %v on the GPU, %v on the host", got, want)
	}
	return nil
}

func (j *gpuJob) combine(d round, hostRoute, gpuRoute *Route, r *rand.Rand) error {
	l := &j.gpu.layout
	rows, err := j.gpu.Rows()
	if err != nil {
		return err
	}
	whole := j.gpu.gpu.HostsSum()
	made, weights := numbers(r, rows*d.hidden, d.out, whole), numbers(r, rows*j.gpu.cfg.TopK, Float32, whole)
	h := Output{Rows: rows, Hidden: d.hidden, Type: d.out, Input: j.hold(made), InPlace: d.inPlace, HasWeights: d.through,
		Weights: j.hold(weights), Weighted: d.weighted, Route: hostRoute}
	g := h
	g.Input, g.Weights, g.Route = j.give(made), j.give(weights), gpuRoute
	if d.inPlace {
		copy(memory.Bytes(j.host.Base()+l.CombineIn.Offset, uint64(len(made))), made)
		if err := j.stream.Copy(j.gpu.Base()+l.CombineIn.Offset, g.Input, uint64(len(made))); err != nil && len(made) > 0 {
			return err
		}
	}
	tokens := j.gpu.Tokens()
	if err := j.host.Combine(h); err != nil {
		return err
	}
	if d.split {
		err = errors.Join(j.gpu.CombineSend(g), j.gpu.CombineRecv())
	} else {
		err = j.gpu.Combine(g)
	}
	err = errors.Join(err, j.same("sums", l.CombineOut, uint64(tokens*d.hidden)*d.out.Size()))
	if d.through {
		err = errors.Join(err, j.same("sums of weights", l.CombineOutWeights, uint64(tokens)*l.WeightBytes()))
	}
	left := 0
	if d.replay {
		left = rows
	}
	if got, bad := j.gpu.Rows(); bad != nil || got != left {
		err = errors.Join(err, bad, fmt.Errorf("%d rows are left after combine, want %d", got, left))
	}
	return err
}

func TestGPUsDoAsHosts(t *testing.T) {
	for _, world := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("%d ranks", world), func(t *testing.T) { onGPUs(t, gpuConfig(world), Options{Threads: 1}, rounds(6)) })
	}
	for _, quant := range []QuantType{QuantFp8DirectCast, QuantFp8Blockwise} {
		t.Run(quant.String(), func(t *testing.T) {
			c := gpuConfig(2)
			c.QuantType = quant
			onGPUs(t, c, Options{Threads: 1, ScaleBlocks: 5}, rounds(4))
		})
	}
}

func (j *gpuJob) ones(n int) Batch {
	c := j.gpu.cfg
	return Batch{N: n, Hidden: c.HiddenDim, Type: Float32, Input: j.give(make([]byte, n*c.HiddenDim*4)), Indices: j.give(make([]byte, n*c.TopK*4))}
}

func TestARankThatDoesNotComeIsNamedOnGPUs(t *testing.T) {
	onGPUs(t, gpuConfig(3), Options{Timeout: 300 * time.Millisecond}, func(j *gpuJob) error {
		if j.gpu.cfg.Rank == 1 {
			return nil
		}
		if _, err := j.gpu.Dispatch(j.ones(2)); err != nil {
			return err
		}
		if err := j.settle(); err != nil {
			return err
		}
		err := j.gpu.Check()
		if !errors.Is(err, shmem.ErrTimeout) || !strings.Contains(err.Error(), "no data arrived from rank 1 (expected 1, seen 0)") {
			return fmt.Errorf("dispatch: %v", err)
		}
		if _, again := j.gpu.Dispatch(j.ones(1)); !errors.Is(again, shmem.ErrTimeout) || !strings.Contains(again.Error(), "broken") {
			return fmt.Errorf("a broken op: %v", again)
		}
		return nil
	})
}

func TestMismatchIsReportedOnGPUs(t *testing.T) {
	onGPUs(t, gpuConfig(2), Options{}, func(j *gpuJob) error {
		b := j.ones(2)
		b.Hidden -= j.gpu.cfg.Rank
		if _, err := j.gpu.Dispatch(b); err != nil && !errors.Is(err, ErrMismatch) {
			return err
		}
		if err := j.settle(); err != nil {
			return err
		}
		if err := j.gpu.Check(); !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("dispatch: %v", err)
		}
		return nil
	})
}

func TestOneWayToCombineForAllOnGPUs(t *testing.T) {
	cfg := gpuConfig(2)
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error {
		if _, err := j.gpu.Dispatch(j.ones(2)); err != nil {
			return err
		}
		out := Output{Rows: cfg.MaxRecv(), Hidden: cfg.HiddenDim, Type: Float32, InPlace: j.gpu.cfg.Rank == 0}
		out.Input = j.give(make([]byte, cfg.MaxRecv()*cfg.HiddenDim*4))
		if err := errors.Join(j.gpu.Combine(out), j.settle()); err != nil && !errors.Is(err, ErrMismatch) {
			return err
		}
		if err := j.gpu.Check(); !errors.Is(err, ErrMismatch) {
			return fmt.Errorf("one rank has its rows in place and the other has not: %v", err)
		}
		return nil
	})
}

func TestOverflowIsReportedOnGPUs(t *testing.T) {
	cfg := gpuConfig(3)
	cfg.MaxTotalRecv = cfg.MaxNumInpToken // room for the rows of one rank
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error {
		n := cfg.MaxNumInpToken
		_, err := j.gpu.Dispatch(j.ones(n)) // all to expert 0
		rows, late := j.gpu.Rows()
		var over *CapError
		if caused := j.gpu.cfg.Rank >= 1; caused != errors.As(errors.Join(err, late), &over) || caused && (over.Source != j.gpu.cfg.Rank || over.Rows != n || over.Used != n) {
			return fmt.Errorf("dispatch: %v, %v", err, late)
		}
		if want := n; j.gpu.cfg.Rank == 0 && rows != want || j.gpu.cfg.Rank != 0 && rows != 0 {
			return fmt.Errorf("%d rows came", rows)
		}
		if err := j.gpu.Check(); err != nil {
			return fmt.Errorf("reported twice: %w", err)
		}
		out := Output{Rows: rows, Hidden: cfg.HiddenDim, Type: Float32, Input: j.give(make([]byte, rows*cfg.HiddenDim*4))}
		return errors.Join(j.gpu.Combine(out), j.settle(), j.gpu.Check())
	})
}

func TestTooFewRowsBreakNothingElse(t *testing.T) {
	cfg := gpuConfig(1)
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error {
		if _, err := j.gpu.Dispatch(j.ones(3)); err != nil {
			return err
		}
		out := Output{Rows: 2, Hidden: cfg.HiddenDim, Type: Float32, Input: j.give(make([]byte, 2*cfg.HiddenDim*4))}
		if err := errors.Join(j.gpu.Combine(out), j.settle()); err != nil && !errors.Is(err, ErrShape) {
			return err
		}
		if err := j.gpu.Check(); !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "fewer rows than the 3") {
			return fmt.Errorf("combine: %v", err)
		}
		return nil
	})
}

func TestBadCallsOnGPUs(t *testing.T) {
	cfg := gpuConfig(1)
	onGPUs(t, cfg, Options{}, func(j *gpuJob) error {
		if _, err := j.gpu.DispatchRecv(); !errors.Is(err, ErrState) {
			return fmt.Errorf("recv before send: %v", err)
		}
		if err := j.gpu.CombineRecv(); !errors.Is(err, ErrState) {
			return fmt.Errorf("recv before send: %v", err)
		}
		b := j.ones(cfg.MaxNumInpToken)
		b.N++
		if _, err := j.gpu.Dispatch(b); !errors.Is(err, ErrShape) {
			return fmt.Errorf("too many tokens: %v", err)
		}
		if _, err := j.gpu.Dispatch(j.ones(1)); err != nil {
			return err
		}
		for name, out := range map[string]Output{
			"weights of nobody":  {Hidden: 1, Type: Float32, Weighted: true},
			"less than no rows":  {Rows: -1, Hidden: 1, Type: Float32},
			"rows at no address": {Rows: 1, Hidden: 1, Type: Float32},
			"weights at none":    {Rows: 1, Hidden: 1, Type: Float32, Input: j.gpu.Base(), HasWeights: true},
			"a bad route":        {Hidden: 1, Type: Float32, Route: &Route{N: 1}},
			"no width":           {Type: Float32},
		} {
			if err := j.gpu.Combine(out); !errors.Is(err, ErrShape) {
				return fmt.Errorf("%s: %v", name, err)
			}
		}
		if err := j.gpu.Pack(Packed{}, 0, 0, cfg.MaxRecv()-1, 1, Float32); !errors.Is(err, ErrShape) {
			return fmt.Errorf("pack: %v", err)
		}
		out := Output{Rows: 1, Hidden: cfg.HiddenDim, Type: Float32, InPlace: true}
		return errors.Join(j.gpu.Combine(out), j.settle(), j.gpu.Check())
	})
}

// If loads and stores do not reach all ranks, New fails on all of them and leaves nothing behind.
func TestGPUsOutOfReach(t *testing.T) {
	gputest.Need(t)
	all, err := device.Devices()
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for rank, g := range bootstrap.Local(2) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			set := shmem.Config{Device: all[0], HeapSize: 8 << 20, Timeout: 20 * time.Second, NodeID: fmt.Sprint(rank), Host: "127.0.0.1"}
			w, err := shmem.Init(context.Background(), g, set)
			if err != nil {
				t.Error(err)
				return
			}
			cfg := gpuConfig(2)
			cfg.Rank = rank
			_, err = New(w, cfg, Options{})
			if want := fmt.Sprintf("does not map that of PE %d", 1-rank); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: %v", rank, err)
			}
			if err := w.Finalize(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
}

func TestCallsOnGPUsAllocateNothing(t *testing.T) {
	onGPUs(t, gpuConfig(1), Options{}, func(j *gpuJob) error {
		b := j.ones(2)
		b.Weights = b.Input
		out := Output{Rows: 9, Hidden: b.Hidden, Type: Float32, Input: j.give(make([]byte, 9*b.Hidden*4)), Weighted: true}
		var err error
		n := testing.AllocsPerRun(20, func() {
			j.gpu.SetStream(j.stream.Handle())
			_, failed := j.gpu.Dispatch(b)
			err = cmp.Or(err, failed, j.gpu.Combine(out))
		})
		if n >= 1 && !raceBuild {
			err = cmp.Or(err, fmt.Errorf("a dispatch and a combine allocate %v times", n))
		}
		return err
	})
}
