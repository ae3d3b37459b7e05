// SPDX-License-Identifier: MIT

package call

import (
	"mori/ep/internal/launch"
	"mori/ep/internal/plan"
)

// An Output is what one rank's experts made of the rows that it received, in their order.
type Output struct {
	Rows, Hidden int
	Type         plan.DType
	Input        uint64       // [Rows, Hidden] of Type; ignored if InPlace
	InPlace      bool         // the rows lie in Layout's CombineIn; implied if Input is there
	HasWeights   bool         // weights travel with the rows, and their sums come back
	Weights      uint64       // float32 [Rows, TopK] if HasWeights
	Route        *Route       // of the dispatch that brought the rows, if it is not the last one
	Launch       launch.Shape // on a GPU

	// Weighted multiplies each row by the sum of the weights that the token's rank gave to the
	// row's experts. A Route must then be that of the last dispatch.
	Weighted bool
}

// A RowFormat is how the rows of a combine travel: as they are, or quantised.
type RowFormat struct {
	Bytes  uint64 // of a row
	Type   plan.DType
	Blocks int // scales of a row, 0: none
}

// Format returns how the rows travel. Rows that lie in place are never quantised.
func (o Output) Format(c *plan.Config, l *plan.Layout) (RowFormat, error) {
	bytes, err := l.RowBytes(o.Hidden, o.Type)
	f := RowFormat{Bytes: bytes, Type: o.Type}
	if err != nil || o.InPlace || o.Type != plan.BFloat16 {
		return f, err
	}
	switch c.QuantType {
	case plan.QuantFp8Blockwise:
		f.Blocks = l.ScaleBlocks
	case plan.QuantFp8DirectCast:
	default:
		return f, nil
	}
	f.Bytes, f.Type = uint64(o.Hidden), plan.Float8E4M3FN
	return f, nil
}

// Signature returns the signature of a combine of rows in this format.
func (o Output) Signature(f RowFormat) uint64 {
	return plan.Signature(f.Bytes, uint64(o.Type), uint64(f.Type))
}

// Packed is the standard-MoE form of received rows: the rows of each expert of this rank lie
// together. The caller owns all memory.
type Packed struct {
	Rows   uint64 // [ExpertsPerRank, PackedRows, Hidden]
	Counts uint64 // int32 [ExpertsPerRank]: how many rows each expert has
	Info   uint64 // int32 [ExpertsPerRank, PackedRows]: which received rows these are
}
