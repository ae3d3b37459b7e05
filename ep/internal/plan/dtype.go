// SPDX-License-Identifier: MIT

package plan

import "mori/native/hostmath"

// A DType is the type of a row's elements, by its number in mori.tensor_utils.DTYPE_TO_INT.
type DType = hostmath.DType

// The types that rows may have. Float4E2M1FNx2 is two values in a byte.
const (
	Float32        = hostmath.Float32
	BFloat16       = hostmath.BFloat16
	Float8E4M3FN   = hostmath.Float8E4M3FN
	Float8E4M3FNUZ = hostmath.Float8E4M3FNUZ
	Float4E2M1FNx2 = hostmath.Float4E2M1FNx2
)

// Dispatchable reports whether rows of type t may be dispatched.
func Dispatchable(t DType) bool { return t == Float4E2M1FNx2 || Summable(t) }

// Summable reports whether rows of type t may be combined.
func Summable(t DType) bool {
	return t == Float32 || t == BFloat16 || t == Float8E4M3FN || t == Float8E4M3FNUZ
}
