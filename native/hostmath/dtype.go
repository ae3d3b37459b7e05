// SPDX-License-Identifier: MIT

package hostmath

import "strconv"

// DType is an element type, by the number that Python has for it in mori.tensor_utils.DTYPE_TO_INT.
type DType int32

// The element types.
const (
	Float32        DType = 0
	BFloat16       DType = 1
	Float8E4M3FN   DType = 2 // OCP OFP8 E4M3: bias 7, no infinity, NaN 0x7f and 0xff, largest 448
	Float8E4M3FNUZ DType = 3 // bias 8, no infinity, no negative zero, NaN 0x80, largest 240
	Int32          DType = 4
	Float4E2M1FNx2 DType = 5 // two values in a byte; it can be moved and no more
)

var dtypes = [...]struct {
	name string
	size uint64
}{
	Float32:        {"float32", 4},
	BFloat16:       {"bfloat16", 2},
	Float8E4M3FN:   {"float8_e4m3fn", 1},
	Float8E4M3FNUZ: {"float8_e4m3fnuz", 1},
	Int32:          {"int32", 4},
	Float4E2M1FNx2: {"float4_e2m1fn_x2", 1},
}

func (t DType) known() bool { return t >= 0 && int(t) < len(dtypes) }

// Size is the bytes of one element, 0 for a number that names none.
func (t DType) Size() uint64 {
	if !t.known() {
		return 0
	}
	return dtypes[t].size
}

func (t DType) String() string {
	if !t.known() {
		return "dtype " + strconv.Itoa(int(t))
	}
	return dtypes[t].name
}

// summable says whether elements of t can be read and written as float32.
func (t DType) summable() bool { return t >= Float32 && t <= Float8E4M3FNUZ }
