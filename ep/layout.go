// SPDX-License-Identifier: MIT

package ep

import (
	"fmt"
)

const (
	// Alignment is that of every region.
	Alignment = 256

	// LineBytes is the distance between two flags. A flag is the 8-byte word at the start of its line, which only one rank writes; it
	// holds the number of the call and never goes back. Words that belong to the call may lie behind it.
	LineBytes = 64

	// maxLayout is what no machine has.
	maxLayout = 1 << 46

	float32Bytes = 4
	int32Bytes   = 4
	wordBytes    = 8
)

// A Region is a part of the symmetric memory of an op: the same at every rank.
type Region struct{ Offset, Size uint64 }

// At is the offset of the i-th element, where one has so many bytes.
func (r Region) At(i int, bytes uint64) uint64 { return r.Offset + uint64(i)*bytes }

// End is the offset behind the region.
func (r Region) End() uint64 { return r.Offset + r.Size }

// A Layout says where everything lies in the symmetric memory of one op. Regions of rows are as large as the largest rows; the rows of
// a call are packed by the bytes that they really have.
type Layout struct {
	cfg Config

	// What a rank received with the last dispatch. Only its first rows are defined.
	DispatchOut        Region // [MaxRecv, hidden]
	DispatchOutWeights Region // float32 [MaxRecv, TopK]
	DispatchOutIndices Region // int32 [MaxRecv, TopK]
	DispatchOutScales  Region // [MaxRecv, ScaleDim], empty without scales
	SrcPositions       Region // int32 [MaxRecv]

	// What a rank's experts made of it, for others to read; or, on GPUs, what others made of this rank's tokens: of rank d and token t in row
	// d * MaxNumInpToken + t (mori/ep/sent.hpp).
	CombineIn        Region // [MaxRecv, hidden]
	CombineInScales  Region // float32 [MaxRecv, scaleBlocks], empty unless combine's rows are quantised blockwise
	CombineInWeights Region // float32 [MaxRecv, TopK]

	// What a rank's own tokens became.
	CombineOut        Region // [MaxNumInpToken, hidden]
	CombineOutWeights Region // float32 [MaxNumInpToken, TopK]

	// Control words, written by other ranks. Counts has two boards, for dispatches of even and odd number: a rank may
	// publish for the next dispatch while another still reads the last one's.
	Counts    Region // [2, WorldSize, WorldSize]: words of 8 bytes (mori/ep/words.hpp); or at its beginning int32, behind flags
	Published Region // lines, by source: its counts are there
	Arrived   Region // lines, by source: its rows are there
	Ready     Region // lines, by rank: its CombineIn may be read; or words, by chunk: rows that it sent are here
	Pulled    Region // lines, by rank: it has read all that it needs of CombineIn here

	Size        uint64 // of all, a multiple of Alignment
	ScaleBlocks int    // of CombineInScales
}

// NewLayout lays out an op. scaleBlocks is how many scales a row has when combine's rows are quantised blockwise; else it does not matter.
func NewLayout(cfg Config, scaleBlocks int) (Layout, error) {
	if err := cfg.Validate(); err != nil {
		return Layout{}, fmt.Errorf("lay out an op: %w", err)
	}
	if !cfg.QuantType.Blockwise() {
		scaleBlocks = 0
	} else if scaleBlocks < 1 || scaleBlocks > cfg.HiddenDim {
		return Layout{}, fmt.Errorf("lay out an op: %d blocks in a row of hidden_dim %d: %w", scaleBlocks, cfg.HiddenDim, ErrConfig)
	}
	l := Layout{cfg: cfg, ScaleBlocks: scaleBlocks}
	for _, r := range l.regions() {
		size, ok := multiply(r.factors...)
		if !ok || size > maxLayout {
			return Layout{}, fmt.Errorf("lay out an op: %s is the product of %d bytes, at most %d can be: %w", r.name, r.factors, maxLayout, ErrConfig)
		}
		*r.region = Region{Offset: l.Size, Size: size}
		l.Size += (size + Alignment - 1) / Alignment * Alignment
	}
	if l.Size > maxLayout {
		return Layout{}, fmt.Errorf("lay out an op: %d bytes, at most %d can be: %w", l.Size, maxLayout, ErrConfig)
	}
	return l, nil
}

// A part is a region with its name and the factors of its size.
type part struct {
	name    string
	region  *Region
	factors []int
}

// regions lists all, in the order in which they lie. Control words come first, so that their offsets do not depend on
// how large rows are.
func (l *Layout) regions() []part {
	c := l.cfg
	world, recv, inp := c.WorldSize, c.MaxRecv(), c.MaxNumInpToken
	return []part{
		{"counts", &l.Counts, []int{2, world, world, wordBytes}},
		{"published", &l.Published, []int{world, LineBytes}},
		{"arrived", &l.Arrived, []int{world, LineBytes}},
		{"ready", &l.Ready, []int{world, LineBytes}},
		{"pulled", &l.Pulled, []int{world, LineBytes}},
		{"dispatch out", &l.DispatchOut, []int{recv, c.HiddenDim, c.MaxTokenTypeSize}},
		{"dispatch out weights", &l.DispatchOutWeights, []int{recv, c.TopK, float32Bytes}},
		{"dispatch out indices", &l.DispatchOutIndices, []int{recv, c.TopK, int32Bytes}},
		{"dispatch out scales", &l.DispatchOutScales, []int{recv, c.ScaleDim, c.ScaleTypeSize}},
		{"source positions", &l.SrcPositions, []int{recv, int32Bytes}},
		{"combine in", &l.CombineIn, []int{recv, c.HiddenDim, c.MaxTokenTypeSize}},
		{"combine in scales", &l.CombineInScales, []int{recv, l.ScaleBlocks, float32Bytes}},
		{"combine in weights", &l.CombineInWeights, []int{recv, c.TopK, float32Bytes}},
		{"combine out", &l.CombineOut, []int{inp, c.HiddenDim, c.MaxTokenTypeSize}},
		{"combine out weights", &l.CombineOutWeights, []int{inp, c.TopK, float32Bytes}},
	}
}

// RowBytes is the bytes of a row of hidden elements. A row that is larger than configured is an error.
func (l *Layout) RowBytes(hidden int, t DType) (uint64, error) {
	bytes := uint64(max(hidden, 0)) * t.Size()
	if bytes == 0 || hidden > l.cfg.HiddenDim || bytes > uint64(l.cfg.HiddenDim)*uint64(l.cfg.MaxTokenTypeSize) {
		return 0, fmt.Errorf("row of %d elements of %v: the op has room for %d of %d bytes: %w",
			hidden, t, l.cfg.HiddenDim, l.cfg.MaxTokenTypeSize, ErrShape)
	}
	return bytes, nil
}

// WeightBytes is the bytes of the weights, and of the indices, of a row.
func (l *Layout) WeightBytes() uint64 { return uint64(l.cfg.TopK) * float32Bytes }

// ScaleBytes is the bytes of the scales that are dispatched with a row.
func (l *Layout) ScaleBytes() uint64 { return uint64(l.cfg.ScaleDim) * uint64(l.cfg.ScaleTypeSize) }

// CountsRow is the offset of a source's row of counts for the dispatch with this number, where they are int32.
func (l *Layout) CountsRow(dispatch uint64, source int) uint64 {
	row := int(dispatch%2)*l.cfg.WorldSize + source
	return l.Counts.At(row, uint64(l.cfg.WorldSize)*int32Bytes)
}

// Line is the offset of a rank's flag.
func (l *Layout) Line(flags Region, rank int) uint64 { return flags.At(rank, LineBytes) }
