// SPDX-License-Identifier: MIT

package ep

import (
	"testing"

	"mori/ep/internal/plan"
	"mori/native/gpu/gputest"
)

// BenchmarkGPUCalls measures the host's part of dispatch and combine. The emulated GPU does not run
// the kernels here.
func BenchmarkGPUCalls(b *testing.B) {
	gputest.Idle(b)
	cfg := DefaultConfig()
	cfg.WorldSize, cfg.HiddenDim, cfg.MaxTokenTypeSize, cfg.MaxNumInpToken, cfg.ExpertsPerRank, cfg.TopK = 1, 128, 2, 128, 8, 8
	const tokens = 4
	onGPUs(b, cfg, Options{}, func(j *gpuJob) error {
		rows, ids := j.give(make([]byte, tokens*cfg.HiddenDim*2)), j.give(make([]byte, tokens*cfg.TopK*plan.Int32Bytes))
		batch := Batch{N: tokens, Hidden: cfg.HiddenDim, Type: BFloat16, Input: rows, Indices: ids}
		if _, err := j.gpu.Dispatch(batch); err != nil {
			return err
		}
		made := Output{Rows: cfg.MaxRecv(), Hidden: cfg.HiddenDim, Type: BFloat16, Input: j.gpu.Base() + j.gpu.layout.DispatchOut.Offset}
		b.Run("dispatch", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := j.gpu.Dispatch(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("combine", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := j.gpu.Combine(made); err != nil {
					b.Fatal(err)
				}
			}
		})
		return nil
	})
}
