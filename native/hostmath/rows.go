// SPDX-License-Identifier: MIT

package hostmath

// Results must not depend on the compiler's options: -fno-fast-math overrides CGO_CFLAGS, and
// -std=c11 forbids gcc to fuse products with sums.

// #cgo CFLAGS: -O3 -fno-fast-math -std=c11 -Wall
// #cgo noescape hm_gather_rows
// #cgo nocallback hm_gather_rows
// #cgo noescape hm_scatter_rows
// #cgo nocallback hm_scatter_rows
// #cgo noescape hm_count_experts
// #cgo nocallback hm_count_experts
// #include "hostmath.h"
import "C"

import (
	"fmt"
	"math"
	"unsafe"
)

// Variant names the vector unit in use: "avx512", "avx2", or "portable" for what every machine of
// this kind has.
func Variant() string { return C.GoString(C.hm_variant()) }

// useVariant makes the variant of that name the one in use and says whether this machine can run
// it.
func useVariant(name string) bool {
	c := append([]byte(name), 0)
	return C.hm_use_variant((*C.char)(unsafe.Pointer(&c[0]))) != 0
}

// memcpy is C's, for benchmarks to compare with.
func memcpy(dst, src, n uint64) { C.hm_memcpy(C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n)) }

// GatherRows copies row idx[i] at src to row i at dst, rows of rowBytes without gaps. Where idx[i]
// is negative, row i stays as it is.
func GatherRows(dst, src, rowBytes uint64, idx []int32) {
	C.hm_gather_rows(C.uint64_t(dst), C.uint64_t(src), C.uint64_t(rowBytes), int32s(idx), C.uint64_t(len(idx)))
}

// ScatterRows copies row i at src to row idx[i] at dst, rows of rowBytes without gaps. Where idx[i]
// is negative, row i goes nowhere. Which of two rows with the same index stays is the later one.
func ScatterRows(dst, src, rowBytes uint64, idx []int32) {
	C.hm_scatter_rows(C.uint64_t(dst), C.uint64_t(src), C.uint64_t(rowBytes), int32s(idx), C.uint64_t(len(idx)))
}

// CopyRows copies n rows of rowBytes, which begin dstStride and srcStride bytes apart.
func CopyRows(dst, dstStride, src, srcStride, rowBytes, n uint64) {
	C.hm_copy_rows(C.uint64_t(dst), C.uint64_t(dstStride), C.uint64_t(src), C.uint64_t(srcStride), C.uint64_t(rowBytes), C.uint64_t(n))
}

// CountExperts adds to counts[e] how often the expert first+e occurs among the int32 ids
// [rows][topk] at indices. Ids of other experts, negative ones among them, are not counted.
func CountExperts(counts []int32, indices uint64, rows, topk int, first int32) error {
	n, err := product("count experts of rows x topk", rows, topk)
	if err == nil && len(counts) > math.MaxInt32 {
		err = fmt.Errorf("count experts: %d counts: %w", len(counts), ErrShape)
	}
	if err != nil {
		return err
	}
	C.hm_count_experts(int32s(counts), C.uint64_t(indices), C.uint64_t(n), C.int32_t(first), C.int32_t(len(counts)))
	return nil
}

func int32s(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.SliceData(s)) }

// maxElements bounds what a call works on, so that no product with an element size runs over.
const maxElements = math.MaxInt64 / 8

// product is a*b, if it is a number of elements that can be.
func product(act string, a, b int) (uint64, error) {
	if a < 0 || b < 0 || (b > 0 && a > maxElements/b) {
		return 0, fmt.Errorf("%s: %d x %d elements: %w", act, a, b, ErrShape)
	}
	return uint64(a) * uint64(b), nil
}
