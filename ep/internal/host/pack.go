// SPDX-License-Identifier: MIT

package host

import (
	"fmt"
	"slices"

	"mori/ep/internal/call"
	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// A packer brings received rows into the standard-MoE form and back.
type packer struct {
	*buffers
	combine *combiner
	threads workers

	slots   []int32  // of each choice, in the form that the last pack made
	sources []uint64 // scratch: addresses of rows
}

// pack copies the rows at x, [rows, hidden] of type t, into the standard-MoE form, by the experts
// at indices, int32 [rows, TopK]. It keeps the slots for unpack.
func (k *packer) pack(to call.Packed, x, indices uint64, rows, hidden int, t plan.DType) error {
	rowBytes, err := k.layout.RowBytes(hidden, t)
	if err != nil {
		return fmt.Errorf("pack %d rows: %w", rows, err)
	}
	if rows < 0 || rows > k.cfg.MaxRecv() {
		return fmt.Errorf("pack %d rows, want at most %d: %w", rows, k.cfg.MaxRecv(), plan.ErrShape)
	}
	choices, experts, stride := rows*k.cfg.TopK, k.cfg.ExpertsPerRank, k.cfg.PackedRows()
	counts, info := view.Of[int32](to.Counts, experts), view.Of[int32](to.Info, experts*stride)
	k.slots = slices.Grow(k.slots[:0], choices)[:choices]
	if err := k.cfg.PackExperts(view.Of[int32](indices, choices), counts, info, k.slots); err != nil {
		return err
	}
	for e, n := range counts {
		mine, dst := info[e*stride:][:n], to.Rows+uint64(e*stride)*rowBytes
		k.threads.share(len(mine), rowBytes, func(first, end int) {
			hostmath.GatherRows(dst+uint64(first)*rowBytes, x, rowBytes, mine[first:end])
		})
	}
	return nil
}

// unpack writes one row for each row that pack had, at dst: the sum over its choices that live
// here, each multiplied by its weight, float32 [rows, TopK] at weights.
func (k *packer) unpack(dst, packed, weights uint64, hidden int, t plan.DType) error {
	rowBytes, err := k.layout.RowBytes(hidden, t)
	if err != nil || !plan.Summable(t) {
		return fmt.Errorf("unpack rows of %d elements of %v: %w", hidden, t, plan.ErrShape)
	}
	if dst == k.at(k.layout.CombineIn) {
		if err := k.combine.awaitPulled("unpack after combine"); err != nil {
			return err
		}
	}
	topk := k.cfg.TopK
	k.sources = slices.Grow(k.sources[:0], len(k.slots))[:len(k.slots)]
	for i, slot := range k.slots {
		k.sources[i] = 0
		if slot >= 0 {
			k.sources[i] = packed + uint64(slot)*rowBytes
		}
	}
	factors := view.Of[float32](weights, len(k.slots))
	return k.threads.shareErr(len(k.slots)/topk, rowBytes*uint64(topk), func(first, end int) error {
		to, from := dst+uint64(first)*rowBytes, k.sources[first*topk:end*topk]
		return hostmath.SumRows(to, t, end-first, hidden, from, t, factors[first*topk:end*topk])
	})
}
