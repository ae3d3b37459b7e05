// SPDX-License-Identifier: MIT

package ep

import "fmt"

// A DType is the type of a row's elements. The numbers are those of mori.tensor_utils.DTYPE_TO_INT.
type DType int32

// The types that rows may have. Float4E2M1FNx2 is two values in a byte: rows of it are moved and never summed.
const (
	Float32 DType = iota
	BFloat16
	Float8E4M3FN
	Float8E4M3FNUZ
	Int32
	Float4E2M1FNx2
)

var dtypes = [...]struct {
	name string
	size int
}{
	Float32:        {"float32", 4},
	BFloat16:       {"bfloat16", 2},
	Float8E4M3FN:   {"float8_e4m3fn", 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1},
	Int32:          {"int32", 4},
	Float4E2M1FNx2: {"float4_e2m1fn_x2", 1},
}

// Size is the bytes of one element, 0 for a number that is no type.
func (t DType) Size() int {
	if !t.known() {
		return 0
	}
	return dtypes[t].size
}

// String is the name that torch has for it.
func (t DType) String() string {
	if !t.known() {
		return fmt.Sprintf("dtype(%d)", int32(t))
	}
	return dtypes[t].name
}

// Dispatchable reports whether rows of this type may be dispatched.
func (t DType) Dispatchable() bool { return t.known() && t != Int32 }

// Summable reports whether rows of this type may be combined.
func (t DType) Summable() bool { return t.Dispatchable() && t != Float4E2M1FNx2 }

func (t DType) known() bool { return t >= 0 && int(t) < len(dtypes) }
