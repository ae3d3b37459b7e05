// SPDX-License-Identifier: MIT

package hostmath

// #cgo noescape hm_sum_rows
// #cgo nocallback hm_sum_rows
// #include "hostmath.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// SumRows makes n rows of h elements at dst, without gaps. Row t is the sum of the rows at srcs[t*m
// : (t+1)*m], where m = len(srcs)/n; address 0 is no row, and a row of no sources is zeros. weights
// is nil, or has one factor for each address. Sums are made in float32 in the order of the table
// and rounded once; one source without a weight comes out as it went in. What does not fit a float8
// becomes NaN, as a cast in PyTorch does; all NaNs come out as the one positive quiet NaN.
func SumRows(dst uint64, dstType DType, n, h int, srcs []uint64, srcType DType, weights []float32) error {
	s, err := newSum("sum rows", dst, dstType, n, h, srcs, srcType, weights)
	if err != nil || n == 0 {
		return err
	}
	return s.run(srcs, nil, weights)
}

// SumQuantRows is SumRows for rows as [QuantBlocks] makes them: srcs are float8_e4m3fn rows, and
// scales are the addresses of their float32 scales, blocks for each row; those of an absent row are
// not looked at. A product of element and scale is rounded to float32 before it is weighted.
func SumQuantRows(dst uint64, dstType DType, n, h, blocks int, srcs, scales []uint64, weights []float32) error {
	s, err := newSum("sum quantised rows", dst, dstType, n, h, srcs, Float8E4M3FN, weights)
	if err != nil {
		return err
	}
	if len(scales) != len(srcs) || blocks < 1 {
		return fmt.Errorf("sum quantised rows: %d scale rows of %d blocks for %d rows: %w", len(scales), blocks, len(srcs), ErrShape)
	}
	if n == 0 {
		return nil
	}
	s.blocks = C.uint64_t(blocks)
	return s.run(srcs, scales, weights)
}

type sum C.struct_hm_sum

func newSum(act string, dst uint64, dstType DType, n, h int, srcs []uint64, srcType DType, weights []float32) (sum, error) {
	if !dstType.summable() || !srcType.summable() {
		return sum{}, fmt.Errorf("%s of %s into %s: %w", act, srcType, dstType, ErrType)
	}
	if _, err := product(act, n, h); err != nil {
		return sum{}, err
	}
	if (n == 0 && len(srcs) > 0) || (n > 0 && len(srcs)%n != 0) {
		return sum{}, fmt.Errorf("%s: %d addresses for %d rows: %w", act, len(srcs), n, ErrShape)
	}
	if weights != nil && len(weights) != len(srcs) {
		return sum{}, fmt.Errorf("%s: %d weights for %d addresses: %w", act, len(weights), len(srcs), ErrShape)
	}
	return sum{
		dst: C.uint64_t(dst), n: C.uint64_t(n), h: C.uint64_t(h), max_src: C.uint64_t(len(srcs) / max(n, 1)),
		dst_type: C.int32_t(dstType), src_type: C.int32_t(srcType),
	}, nil
}

func (s sum) run(srcs, scales []uint64, weights []float32) error {
	rc := C.hm_sum_rows((*C.struct_hm_sum)(&s), uint64s(srcs), uint64s(scales), (*C.float)(unsafe.SliceData(weights)))
	return status("hm_sum_rows", rc)
}

// Convert makes n elements of dstType at dst from n of srcType at src, both of the four floating
// point types, rounded to nearest even. What does not fit a float8 becomes its largest number with
// saturate, infinity too, and NaN without, as a cast in PyTorch does. NaN stays NaN, with its sign
// where the type has one for it.
func Convert(dst uint64, dstType DType, src uint64, srcType DType, n int, saturate bool) error {
	if !dstType.summable() || !srcType.summable() {
		return fmt.Errorf("convert %s to %s: %w", srcType, dstType, ErrType)
	}
	if _, err := product("convert", n, 1); err != nil {
		return err
	}
	over := C.int32_t(0)
	if saturate {
		over = 1
	}
	return status("hm_convert", C.hm_convert(C.uint64_t(dst), C.int32_t(dstType), C.uint64_t(src), C.int32_t(srcType), C.uint64_t(n), over))
}

// QuantBlocks makes rows of h float8_e4m3fn elements at dst and of blocks float32 scales at scales,
// from rows of h elements of srcType at src. Block b of a row is its elements b*l to (b+1)*l, where
// l = ceil(h/blocks); the last blocks may be short or empty. The scale is the largest finite
// magnitude of the block divided by 448, at least 2^-126, and 1 for a block of zeros or of none; an
// element is x / scale, rounded. NaN and infinity become NaN and spoil no neighbour.
func QuantBlocks(dst, scales, src uint64, srcType DType, rows, h, blocks int) error {
	if !srcType.summable() {
		return fmt.Errorf("quantise %s: %w", srcType, ErrType)
	}
	if _, err := product("quantise", rows, h); err != nil {
		return err
	}
	if blocks < 1 {
		return fmt.Errorf("quantise rows in %d blocks: %w", blocks, ErrShape)
	}
	if _, err := product("quantise in blocks", rows, blocks); err != nil {
		return err
	}
	return status("hm_quant_blocks", C.hm_quant_blocks(C.uint64_t(dst), C.uint64_t(scales), C.uint64_t(src), C.int32_t(srcType),
		C.uint64_t(rows), C.uint64_t(h), C.uint64_t(blocks)))
}

func uint64s(s []uint64) *C.uint64_t { return (*C.uint64_t)(unsafe.SliceData(s)) }

// status makes an error of what a kernel answers.
func status(call string, rc C.int) error {
	if rc != C.HM_OK {
		return fmt.Errorf("%s: status %d: %w", call, rc, ErrType)
	}
	return nil
}
