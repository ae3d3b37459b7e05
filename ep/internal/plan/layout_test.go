// SPDX-License-Identifier: MIT

package plan

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// checkLayout looks whether the regions are aligned, apart from each other and within Size.
func checkLayout(t *testing.T, c Config, l Layout) {
	t.Helper()
	end := uint64(0)
	for _, p := range l.regions() {
		r := *p.region
		if r.Offset%Alignment != 0 || r.Offset < end || r.End() < r.Offset || r.End() > l.Size {
			t.Fatalf("%+v: %s lies at %d to %d of %d, after %d", c, p.name, r.Offset, r.End(), l.Size, end)
		}
		end = r.End()
	}
	if l.Size%Alignment != 0 || l.Size-end >= Alignment {
		t.Fatalf("%+v: %d bytes, the last of which is used at %d", c, l.Size, end)
	}
}

func TestLayoutOfAnOp(t *testing.T) {
	c := config(2, 4, 8, 6, 100)
	c.HiddenDim, c.MaxTokenTypeSize, c.ScaleDim, c.ScaleTypeSize, c.MaxTotalRecv = 70, 2, 5, 4, 200
	c.QuantType = QuantFp8Blockwise
	l, err := NewLayout(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	checkLayout(t, c, l)
	for _, r := range []struct {
		name string
		got  Region
		want uint64
	}{
		{"dispatch out", l.DispatchOut, 200 * 70 * 2},
		{"dispatch out weights", l.DispatchOutWeights, 200 * 6 * 4},
		{"dispatch out indices", l.DispatchOutIndices, 200 * 6 * 4},
		{"dispatch out scales", l.DispatchOutScales, 200 * 5 * 4},
		{"source positions", l.SrcPositions, 200 * 4},
		{"combine in", l.CombineIn, 200 * 70 * 2},
		{"combine in scales", l.CombineInScales, 200 * 7 * 4},
		{"combine in weights", l.CombineInWeights, 200 * 6 * 4},
		{"combine out", l.CombineOut, 100 * 70 * 2},
		{"combine out weights", l.CombineOutWeights, 100 * 6 * 4},
		{"counts", l.Counts, 2 * 4 * 4 * 8},
		{"published", l.Published, 4 * 64},
		{"arrived", l.Arrived, 4 * 64},
		{"ready", l.Ready, 4 * 64},
		{"pulled", l.Pulled, 4 * 64},
	} {
		if r.got.Size != r.want {
			t.Errorf("%s has %d bytes, want %d", r.name, r.got.Size, r.want)
		}
	}
	if l.WeightBytes() != 24 || l.ScaleBytes() != 20 {
		t.Errorf("a row has %d bytes of weights and %d of scales", l.WeightBytes(), l.ScaleBytes())
	}
	if got := l.DispatchOut.At(3, 140) - l.DispatchOut.Offset; got != 420 {
		t.Errorf("row 3 lies at %d", got)
	}
}

func TestLayoutIsTheSameAtEveryRank(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		c, _, _ := draw(r)
		c.ScaleDim, c.ScaleTypeSize, c.HiddenDim, c.QuantType = r.IntN(5), r.IntN(5), 1+r.IntN(500), QuantType(r.IntN(4))
		first, err := NewLayout(c, 1)
		if err != nil {
			t.Fatal(err)
		}
		checkLayout(t, c, first)
		last, err := NewLayout(c.of(c.WorldSize-1), 1)
		if err != nil {
			t.Fatal(err)
		}
		first.cfg = last.cfg
		if first != last {
			t.Fatalf("rank 0 has %+v, rank %d %+v", first, c.WorldSize-1, last)
		}
	}
}

func TestControlWordsDoNotTouch(t *testing.T) {
	c := config(0, 5, 1, 1, 3)
	l, err := NewLayout(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	used := map[uint64]string{}
	use := func(name string, offset, bytes uint64) {
		for b := offset; b < offset+bytes; b++ {
			if used[b] != "" {
				t.Fatalf("byte %d is of %s and of %s", b, used[b], name)
			}
			used[b] = name
		}
	}
	for rank := range c.WorldSize {
		for dispatch := range uint64(2) {
			use("counts", l.CountsRow(dispatch, rank), uint64(c.WorldSize)*4)
		}
		use("published", l.Line(l.Published, rank), LineBytes)
		use("arrived", l.Line(l.Arrived, rank), LineBytes)
		use("ready", l.Line(l.Ready, rank), LineBytes)
		use("pulled", l.Line(l.Pulled, rank), LineBytes)
	}
	for offset := range used {
		if offset >= l.DispatchOut.Offset {
			t.Fatalf("control word at %d, behind the start of rows at %d", offset, l.DispatchOut.Offset)
		}
	}
	if l.CountsRow(7, 2) != l.CountsRow(1, 2) || l.CountsRow(7, 2) == l.CountsRow(8, 2) {
		t.Error("count matrices do not alternate")
	}
}

func TestLayoutRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		blocks int
	}{
		{"no blocks for blockwise rows", func(c *Config) { c.QuantType = QuantFp8Blockwise }, 0},
		{"more blocks than elements", func(c *Config) { c.QuantType = QuantFp4Blockwise }, 17},
		{"more bytes than any machine has", func(c *Config) { c.HiddenDim, c.MaxTokenTypeSize = math.MaxInt32, 1<<16 }, 0},
		{"a size of more than 64 bits", func(c *Config) { c.HiddenDim, c.MaxTokenTypeSize = math.MaxInt32, math.MaxInt32 }, 0},
		{"scales of more than 64 bits", func(c *Config) { c.ScaleDim, c.ScaleTypeSize = math.MaxInt32, math.MaxInt32 }, 0},
		{"scales whose size is 0 once it is rounded up", func(c *Config) { c.ScaleDim, c.ScaleTypeSize = 1<<29-1, 1<<29+1 }, 0},
		{"regions that fit one by one", func(c *Config) { c.HiddenDim, c.MaxTokenTypeSize = 1<<31-1, 1<<8 }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(0, 4, 2, 2, 16)
			c.change(&cfg)
			if l, err := NewLayout(cfg, c.blocks); !errors.Is(err, ErrConfig) {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

func TestRowBytes(t *testing.T) {
	c := config(0, 2, 2, 2, 2)
	c.HiddenDim, c.MaxTokenTypeSize = 100, 2
	l, err := NewLayout(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		name   string
		hidden int
		dtype  DType
		want   uint64 // 0: refused
	}{
		{"the largest row", 100, BFloat16, 200},
		{"a narrower type", 100, Float8E4M3FN, 100},
		{"a shorter row", 7, BFloat16, 14},
		{"a short row of a wider type", 50, Float32, 200},
		{"a wider type than fits", 51, Float32, 0},
		{"more elements, though they would fit", 101, Float8E4M3FN, 0},
		{"no elements", 0, BFloat16, 0},
		{"fewer than none", -1, BFloat16, 0},
		{"the most negative", math.MinInt, BFloat16, 0},
		{"no type", 1, DType(99), 0},
	} {
		if got, err := l.RowBytes(r.hidden, r.dtype); got != r.want || errors.Is(err, ErrShape) != (r.want == 0) {
			t.Errorf("%s: %d, %v, want %d", r.name, got, err, r.want)
		}
	}
}
