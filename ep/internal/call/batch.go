// SPDX-License-Identifier: MIT

package call

import (
	"fmt"

	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
)

// A Batch is what one rank dispatches: N tokens, as addresses of contiguous arrays. N may be 0 and
// differ between ranks. Everything else is the same on all ranks.
type Batch struct {
	N, Hidden int
	Type      plan.DType
	Input     uint64       // [N, Hidden] of Type
	Indices   uint64       // int32 [N, TopK]: experts; a number of no expert has no destination
	Weights   uint64       // float32 [N, TopK], or 0
	Scales    uint64       // [N, ScaleDim] of ScaleTypeSize bytes, or 0
	Route     *Route       // replays an earlier dispatch; Indices still travel with the rows
	Launch    launch.Shape // on a GPU
}

// A Route is an earlier dispatch, for Dispatch and Combine to repeat.
type Route struct {
	Slots  uint64 // int32 [N, TopK], as Op.Slots filled it
	N      int    // tokens
	Rows   int    // that this rank received; on a GPU it is not used
	RowsAt uint64 // on a GPU: address of the int32 with the number of received rows
}

// Check returns the bytes of a row. It fails if the batch does not fit the op.
func (b Batch) Check(c *plan.Config, l *plan.Layout) (rowBytes uint64, err error) {
	switch {
	case b.N < 0 || b.N > c.MaxNumInpToken:
		return 0, fmt.Errorf("at most %d tokens: %w", c.MaxNumInpToken, plan.ErrShape)
	case !plan.Dispatchable(b.Type):
		return 0, fmt.Errorf("rows of %v: %w", b.Type, plan.ErrShape)
	case b.N > 0 && (b.Input == 0 || b.Indices == 0):
		return 0, fmt.Errorf("rows or indices are missing: %w", plan.ErrShape)
	case b.Route != nil && b.Route.N != b.N:
		return 0, fmt.Errorf("the routing handle has %d tokens: %w", b.Route.N, plan.ErrShape)
	}
	return l.RowBytes(b.Hidden, b.Type)
}

// Signature returns the signature of a dispatch of rows of rowBytes.
func (b Batch) Signature(rowBytes uint64) uint64 { return plan.Signature(rowBytes, uint64(b.Type)) }
