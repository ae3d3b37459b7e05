// SPDX-License-Identifier: MIT

package plan

import (
	"fmt"

	"mori/native/abi"
)

const (
	// Alignment is that of every region.
	Alignment = 256

	// LineBytes is the distance between two flags. A flag is the 8-byte word at the start of its
	// line. Only one rank writes it. It has the number of the call, which never decreases. Words
	// that belong to the call may lie behind it.
	LineBytes = abi.EPLineBytes

	// maxLayout is more memory than any machine has.
	maxLayout = 1 << 46

	// ReceivedWord and LocalCounts are offsets in the memory that only the rank itself uses: of the
	// int32 with the number of received rows, and of the int32 [ExpertsPerRank] of CountLocal.
	ReceivedWord = 0
	LocalCounts  = Alignment

	Float32Bytes = 4 // Float32Bytes is the size of a weight or a scale of combine.
	Int32Bytes   = 4 // Int32Bytes is the size of an index, a position or a count.
	WordBytes    = 8 // WordBytes is the size of a flag.
)

// A Region is a part of the symmetric memory of an op. It is the same on every rank.
type Region struct{ Offset, Size uint64 }

// At returns the offset of element i, where each element has the given number of bytes.
func (r Region) At(i int, bytes uint64) uint64 { return r.Offset + uint64(i)*bytes }

// End returns the offset behind the region.
func (r Region) End() uint64 { return r.Offset + r.Size }

// A Layout says where each region lies in the symmetric memory of one op. Regions have room for the
// largest rows. The rows of a call follow each other without gaps, by the size that they have.
type Layout struct {
	cfg Config

	// What a rank received with the last dispatch. Only as many rows as it received are defined.
	DispatchOut        Region // [MaxRecv, hidden]
	DispatchOutWeights Region // float32 [MaxRecv, TopK]
	DispatchOutIndices Region // int32 [MaxRecv, TopK]
	DispatchOutScales  Region // [MaxRecv, ScaleDim], empty without scales
	SrcPositions       Region // int32 [MaxRecv]

	// What a rank's experts made of it, for other ranks to pull. On GPUs it can also be what other
	// ranks pushed: the row of rank d and token t is row d * MaxNumInpToken + t
	// (mori/ep/sent.hpp).
	CombineIn        Region // [MaxRecv, hidden]
	CombineInScales  Region // float32 [MaxRecv, scaleBlocks], empty unless quantised blockwise
	CombineInWeights Region // float32 [MaxRecv, TopK]

	// What a rank's own tokens became.
	CombineOut        Region // [MaxNumInpToken, hidden]
	CombineOutWeights Region // float32 [MaxNumInpToken, TopK]

	// Control words, written by other ranks. Counts has two matrices, for dispatches of even and
	// odd number: a rank may publish for the next dispatch while another still reads the last one.
	// On GPUs an entry has 8 bytes (mori/ep/words.hpp), on host memory it is an int32.
	Counts    Region // [2, WorldSize, WorldSize]
	Published Region // lines, by source: its counts have arrived here
	Arrived   Region // lines, by source: its rows have arrived here
	Ready     Region // lines, by rank: others may read its CombineIn; or words, by chunk of pushed rows
	Pulled    Region // lines, by rank: it has read all that it needs of CombineIn here

	Size        uint64 // of all regions together, a multiple of Alignment
	ScaleBlocks int    // of CombineInScales
}

// NewLayout lays out an op. scaleBlocks is the number of scales of a row if combine's rows are
// quantised blockwise, else it is ignored.
func NewLayout(cfg Config, scaleBlocks int) (Layout, error) {
	if err := cfg.Validate(); err != nil {
		return Layout{}, fmt.Errorf("lay out an op: %w", err)
	}
	if !cfg.QuantType.Blockwise() {
		scaleBlocks = 0
	} else if scaleBlocks < 1 || scaleBlocks > cfg.HiddenDim {
		return Layout{}, fmt.Errorf("lay out an op: %d blocks in a row of hidden_dim %d: %w",
			scaleBlocks, cfg.HiddenDim, ErrConfig)
	}
	l := Layout{cfg: cfg, ScaleBlocks: scaleBlocks}
	for _, r := range l.regions() {
		size, ok := multiply(r.factors...)
		if !ok || size > maxLayout {
			return Layout{}, fmt.Errorf("lay out an op: %s is the product of %d bytes, want at most %d: %w",
				r.name, r.factors, maxLayout, ErrConfig)
		}
		*r.region = Region{Offset: l.Size, Size: size}
		l.Size += (size + Alignment - 1) / Alignment * Alignment
	}
	if l.Size > maxLayout {
		return Layout{}, fmt.Errorf("lay out an op: %d bytes, want at most %d: %w", l.Size, maxLayout, ErrConfig)
	}
	return l, nil
}

// OwnBytes returns the size of the memory that only the rank itself uses.
func (c Config) OwnBytes() uint64 {
	return LocalCounts + uint64(c.ExpertsPerRank)*Int32Bytes
}

// A part is a region with its name and the factors of its size.
type part struct {
	name    string
	region  *Region
	factors []int
}

// regions lists all regions in the order of their offsets. Control words come first, so that their
// offsets do not depend on the size of rows.
func (l *Layout) regions() []part {
	c := l.cfg
	world, recv, inp := c.WorldSize, c.MaxRecv(), c.MaxNumInpToken
	return []part{
		{"counts", &l.Counts, []int{2, world, world, WordBytes}},
		{"published", &l.Published, []int{world, LineBytes}},
		{"arrived", &l.Arrived, []int{world, LineBytes}},
		{"ready", &l.Ready, []int{world, LineBytes}},
		{"pulled", &l.Pulled, []int{world, LineBytes}},
		{"dispatch out", &l.DispatchOut, []int{recv, c.HiddenDim, c.MaxTokenTypeSize}},
		{"dispatch out weights", &l.DispatchOutWeights, []int{recv, c.TopK, Float32Bytes}},
		{"dispatch out indices", &l.DispatchOutIndices, []int{recv, c.TopK, Int32Bytes}},
		{"dispatch out scales", &l.DispatchOutScales, []int{recv, c.ScaleDim, c.ScaleTypeSize}},
		{"source positions", &l.SrcPositions, []int{recv, Int32Bytes}},
		{"combine in", &l.CombineIn, []int{recv, c.HiddenDim, c.MaxTokenTypeSize}},
		{"combine in scales", &l.CombineInScales, []int{recv, l.ScaleBlocks, Float32Bytes}},
		{"combine in weights", &l.CombineInWeights, []int{recv, c.TopK, Float32Bytes}},
		{"combine out", &l.CombineOut, []int{inp, c.HiddenDim, c.MaxTokenTypeSize}},
		{"combine out weights", &l.CombineOutWeights, []int{inp, c.TopK, Float32Bytes}},
	}
}

// RowBytes returns the bytes of a row of hidden elements. It fails if the row is larger than
// configured.
func (l *Layout) RowBytes(hidden int, t DType) (uint64, error) {
	bytes := uint64(max(hidden, 0)) * t.Size()
	if bytes == 0 || hidden > l.cfg.HiddenDim || bytes > uint64(l.cfg.HiddenDim)*uint64(l.cfg.MaxTokenTypeSize) {
		return 0, fmt.Errorf("row of %d elements of %v: the op has room for %d of %d bytes: %w",
			hidden, t, l.cfg.HiddenDim, l.cfg.MaxTokenTypeSize, ErrShape)
	}
	return bytes, nil
}

// WeightBytes returns the bytes of a row's weights, which are as many as those of its indices.
func (l *Layout) WeightBytes() uint64 { return uint64(l.cfg.TopK) * Float32Bytes }

// ScaleBytes returns the bytes of the scales that are dispatched with a row.
func (l *Layout) ScaleBytes() uint64 { return uint64(l.cfg.ScaleDim) * uint64(l.cfg.ScaleTypeSize) }

// CountsRow returns the offset of a source's row of counts for the dispatch with this number, on
// host memory, where counts are int32.
func (l *Layout) CountsRow(dispatch uint64, source int) uint64 {
	row := int(dispatch%2)*l.cfg.WorldSize + source
	return l.Counts.At(row, uint64(l.cfg.WorldSize)*Int32Bytes)
}

// Line returns the offset of a rank's flag.
func (l *Layout) Line(flags Region, rank int) uint64 { return flags.At(rank, LineBytes) }
