// SPDX-License-Identifier: MIT

package ep

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"mori/core/bootstrap"
	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/shmem"
)

// BenchmarkOp dispatches and combines 4096 tokens of 7168 bf16, 8 of 32 experts, between 4 ranks,
// and copies as many rows with as many threads. The metric "dispatch" is the time of a copy of the
// rows that a rank sends over the time of a dispatch. "combine" is the time of a copy of the rows
// that a rank returns, and of reading those that it sums, over the time of a combine.
func BenchmarkOp(b *testing.B) {
	cfg := DefaultConfig()
	cfg.WorldSize, cfg.HiddenDim, cfg.MaxTokenTypeSize, cfg.MaxNumInpToken, cfg.ExpertsPerRank, cfg.TopK = 4, 7168, 2, 4096, 8, 8
	if testing.Short() {
		cfg.MaxNumInpToken = 128
	}
	var times [4]time.Duration
	errs := make([]error, cfg.WorldSize)
	var wait sync.WaitGroup
	for rank, g := range bootstrap.Local(cfg.WorldSize) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			got, err := benchRank(b, g, cfg)
			errs[rank] = err
			if rank == 0 {
				times = got
			}
		}()
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(times[0].Seconds()/float64(b.N)*1e3, "ms/dispatch")
	b.ReportMetric(times[1].Seconds()/float64(b.N)*1e3, "ms/combine")
	b.ReportMetric(times[2].Seconds()/times[0].Seconds(), "dispatch")
	b.ReportMetric(times[3].Seconds()/times[1].Seconds(), "combine")
}

func benchRank(b *testing.B, g bootstrap.Group, cfg Config) (times [4]time.Duration, err error) {
	cfg.Rank = g.Rank()
	layout, err := plan.NewLayout(cfg, 1)
	if err != nil {
		return times, err
	}
	w, err := shmem.Init(context.Background(), g, shmem.Config{HeapSize: layout.Size + 1<<20, Timeout: time.Minute, NodeID: "node"})
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, w.Finalize(context.Background())) }()
	o, err := New(w, cfg, Options{Timeout: time.Minute, Threads: 1})
	if err != nil {
		return times, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	n, row := cfg.MaxNumInpToken, uint64(cfg.HiddenDim*2)
	in := make([]byte, uint64(n)*row)
	for i := range in {
		in[i] = byte(i * 7)
	}
	r := rand.New(rand.NewPCG(1, uint64(cfg.Rank)))
	experts := make([]int32, 0, n*cfg.TopK)
	for range n {
		for _, e := range r.Perm(cfg.Experts())[:cfg.TopK] {
			experts = append(experts, int32(e))
		}
	}
	batch := Batch{N: n, Hidden: cfg.HiddenDim, Type: BFloat16, Input: memory.AddrOf(in), Indices: view.Addr(experts)}
	routes := plan.New(cfg)
	if err := routes.Build(experts); err != nil {
		return times, err
	}
	sent := uint64(routes.Len())
	out := make([]byte, layout.CombineIn.Size)
	copied := make([]byte, uint64(cfg.MaxRecv())*row)
	defer func() { runtime.KeepAlive(in); runtime.KeepAlive(experts); runtime.KeepAlive(out) }()
	step := func(i int, f func() error) error {
		if err := g.Barrier(context.Background()); err != nil {
			return err
		}
		began := time.Now()
		if err := f(); err != nil {
			return err
		}
		if err := w.BarrierAll(); err != nil {
			return err
		}
		times[i] += time.Since(began)
		return nil
	}
	round := func() error {
		rows := 0
		err := step(0, func() (err error) { rows, err = o.Dispatch(batch); return err })
		if err != nil {
			return err
		}
		err = step(1, func() error {
			return o.Combine(Output{Rows: rows, Hidden: cfg.HiddenDim, Type: BFloat16, Input: memory.AddrOf(out)})
		})
		if err != nil {
			return err
		}
		// The minimum traffic: each sent row is read once and written once.
		if err := step(2, func() error {
			for i := range sent {
				copy(copied[i*row:(i+1)*row], in[i%uint64(n)*row:])
			}
			return nil
		}); err != nil {
			return err
		}
		// Each received row is copied to where others reach it. Each row that was sent is read, and
		// each token is written.
		return step(3, func() error {
			memory.Copy(memory.AddrOf(copied), memory.AddrOf(out), uint64(rows)*row)
			half := sent * row / 2
			memory.Copy(memory.AddrOf(copied), memory.AddrOf(copied)+half, half)
			return nil
		})
	}
	if err := round(); err != nil { // touches the pages
		return times, err
	}
	clear(times[:])
	if cfg.Rank == 0 {
		b.ResetTimer()
		b.Logf("%d rows sent", sent)
	}
	for range b.N {
		if err := round(); err != nil {
			return times, err
		}
	}
	return times, nil
}
