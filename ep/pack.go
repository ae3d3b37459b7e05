// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
	"slices"

	"mori/ep/internal/plan"
	"mori/ep/internal/view"
	"mori/native/hostmath"
)

// Packed is the standard-MoE form of received rows: each expert of this rank has its rows together.
// All memory is the caller's.
type Packed struct {
	Rows   uint64 // [ExpertsPerRank, PackedRows, Hidden]
	Counts uint64 // int32 [ExpertsPerRank]: how many rows each expert has
	Info   uint64 // int32 [ExpertsPerRank, PackedRows]: which received rows these are
}

// Pack copies the rows at x, [rows, hidden] of type t, into the standard-MoE form, by the experts
// at indices, int32 [rows, TopK]. The op remembers for Unpack what went where. On a GPU the last
// dispatch tells how many rows there are, and rows is MaxRecv at least.
func (o *Op) Pack(to Packed, x, indices uint64, rows, hidden int, t DType) error {
	rowBytes, err := o.layout.RowBytes(hidden, t)
	if err != nil {
		return fmt.Errorf("pack %d rows: %w", rows, err)
	}
	if o.gpu != nil {
		return o.gpu.pack(to, x, indices, rows, rowBytes)
	}
	if rows < 0 || rows > o.cfg.MaxRecv() {
		return fmt.Errorf("pack %d rows, at most %d can be: %w", rows, o.cfg.MaxRecv(), ErrShape)
	}
	experts, stride := o.cfg.ExpertsPerRank, o.cfg.PackedRows()
	counts, info := view.Of[int32](to.Counts, experts), view.Of[int32](to.Info, experts*stride)
	o.packed = slices.Grow(o.packed[:0], rows*o.cfg.TopK)[:rows*o.cfg.TopK]
	if err := o.cfg.PackExperts(view.Of[int32](indices, rows*o.cfg.TopK), counts, info, o.packed); err != nil {
		return err
	}
	for e, n := range counts {
		mine, dst := info[e*stride:][:n], to.Rows+uint64(e*stride)*rowBytes
		o.share(len(mine), rowBytes, func(first, end int) {
			hostmath.GatherRows(dst+uint64(first)*rowBytes, x, rowBytes, mine[first:end])
		})
	}
	return nil
}

// Unpack makes of what the experts made of Packed.Rows, at address packed, one row for each row
// that Pack was given, at dst: the sum over its choices that live here, each multiplied by its
// weight, float32 [rows, TopK] at weights. hidden and t may be others than those of Pack. dst may
// be Layout's CombineIn.
func (o *Op) Unpack(dst, packed, weights uint64, hidden int, t DType) error {
	rowBytes, err := o.layout.RowBytes(hidden, t)
	if err != nil || !plan.Summable(t) {
		return fmt.Errorf("unpack rows of %d elements of %v: %w", hidden, t, ErrShape)
	}
	if o.gpu != nil {
		return o.gpu.unpack(dst, packed, weights, hidden, t)
	}
	if dst == o.base+o.layout.CombineIn.Offset {
		// Somebody may still read the rows of the last combine there.
		if err := o.usable(); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
		if err := o.await("unpack after combine", o.layout.Pulled, o.combines, anyStamp, everyone); err != nil {
			return err
		}
	}
	k := o.cfg.TopK
	rows := len(o.packed) / k
	if cap(o.sources) < len(o.packed) {
		o.sources = make([]uint64, len(o.packed))
	}
	o.sources = o.sources[:len(o.packed)]
	for i, slot := range o.packed {
		o.sources[i] = 0
		if slot >= 0 {
			o.sources[i] = packed + uint64(slot)*rowBytes
		}
	}
	factors := view.Of[float32](weights, len(o.packed))
	return o.shareErr(rows, rowBytes*uint64(k), func(first, end int) error {
		to := dst + uint64(first)*rowBytes
		return hostmath.SumRows(to, t, end-first, hidden, o.sources[first*k:end*k], t, factors[first*k:end*k])
	})
}

// CountLocal fills LocalCounts: how many choices of the rows received name each expert of this
// rank.
func (o *Op) CountLocal() error {
	if o.gpu != nil {
		return o.gpu.countLocal()
	}
	return o.cfg.CountReceived(o.LocalCounts(), o.base+o.layout.DispatchOutIndices.Offset, o.received)
}
