// SPDX-License-Identifier: MIT

package fabric

// A DataType is the element type of an atomic op, in the hosts' byte order.
type DataType uint8

// The data types: those of libfabric's fi_atomic.h that Go has, too.
const (
	Int8 DataType = 1 + iota
	Uint8
	Int16
	Uint16
	Int32
	Uint32
	Int64
	Uint64
	Float32
	Float64
	Complex64  // two Float32
	Complex128 // two Float64

	dataTypeEnd
)

var dataTypes = [...]struct {
	size int
	text string
}{
	Int8: {1, "int8"}, Uint8: {1, "uint8"}, Int16: {2, "int16"}, Uint16: {2, "uint16"}, Int32: {4, "int32"}, Uint32: {4, "uint32"},
	Int64: {8, "int64"}, Uint64: {8, "uint64"}, Float32: {4, "float32"}, Float64: {8, "float64"}, Complex64: {8, "complex64"}, Complex128: {16, "complex128"},
}

// Size returns the size of an element in bytes, or 0 if t is not a data type.
func (t DataType) Size() int {
	if t == 0 || t >= dataTypeEnd {
		return 0
	}
	return dataTypes[t].size
}

// Integer reports whether t is an integer type.
func (t DataType) Integer() bool { return t >= Int8 && t <= Uint64 }

// Complex reports whether t is a complex type. Complex numbers have no order.
func (t DataType) Complex() bool { return t == Complex64 || t == Complex128 }

// String returns Go's name of the type.
func (t DataType) String() string {
	if t.Size() == 0 {
		return "type?"
	}
	return dataTypes[t].text
}

// An AtomicOp is the operation that an atomic op applies to each element.
type AtomicOp uint8

// The operations. x is the element's value at the target, v the operand. Logical operations treat 0
// as false and return 0 or 1.
const (
	AtomicMin   AtomicOp = 1 + iota // min(x, v)
	AtomicMax                       // max(x, v)
	AtomicSum                       // x + v; integers wrap
	AtomicProd                      // x * v; integers wrap
	AtomicLOr                       // x || v
	AtomicLAnd                      // x && v
	AtomicBOr                       // x | v
	AtomicBAnd                      // x & v
	AtomicLXor                      // !x != !v
	AtomicBXor                      // x ^ v
	AtomicRead                      // x; ignores the operand. Fetching only
	AtomicWrite                     // v

	// Comparing only: v if c (Atomic.Compare) and x satisfy the comparison, else x.
	AtomicCSwap   // c == x
	AtomicCSwapNE // c != x
	AtomicCSwapLE // c <= x
	AtomicCSwapLT // c < x
	AtomicCSwapGE // c >= x
	AtomicCSwapGT // c > x
	AtomicMSwap   // (v & c) | (x &^ c)

	atomicOpEnd
)

var atomicOpText = [...]string{AtomicMin: "min", AtomicMax: "max", AtomicSum: "sum", AtomicProd: "prod", AtomicLOr: "lor", AtomicLAnd: "land",
	AtomicBOr: "bor", AtomicBAnd: "band", AtomicLXor: "lxor", AtomicBXor: "bxor", AtomicRead: "read", AtomicWrite: "write",
	AtomicCSwap: "cswap", AtomicCSwapNE: "cswap_ne", AtomicCSwapLE: "cswap_le", AtomicCSwapLT: "cswap_lt", AtomicCSwapGE: "cswap_ge",
	AtomicCSwapGT: "cswap_gt", AtomicMSwap: "mswap"}

// String returns libfabric's name of the operation, in lower case.
func (o AtomicOp) String() string {
	if o == 0 || o >= atomicOpEnd {
		return "atomic?"
	}
	return atomicOpText[o]
}

// An Atomic holds the fields of an Op that only atomics have. Op.Seg is the operand, Op.RSeg the
// target.
type Atomic struct {
	Op      AtomicOp
	Type    DataType
	Compare Seg // OpCompareAtomic: as long as the operand
	Result  Seg // OpFetchAtomic and OpCompareAtomic: the target's previous value; as long as the operand
}

// AtomicValid reports whether the combination of kind, operation and type is valid, by the table of
// fi_atomic(3).
//
//	OpAtomic         min to bxor, write
//	OpFetchAtomic    min to bxor, read, write
//	OpCompareAtomic  cswap to mswap
//
// Complex types have no min or max, and can be compared for equality only. Bitwise operations (bor,
// band, bxor, mswap) need an integer type.
func AtomicValid(kind OpKind, op AtomicOp, t DataType) bool {
	if t.Size() == 0 || op == 0 || op >= atomicOpEnd {
		return false
	}
	switch kind {
	case OpAtomic:
		if op > AtomicWrite || op == AtomicRead {
			return false
		}
	case OpFetchAtomic:
		if op > AtomicWrite {
			return false
		}
	case OpCompareAtomic:
		if op < AtomicCSwap {
			return false
		}
	default:
		return false
	}
	switch op {
	case AtomicMin, AtomicMax, AtomicCSwapLE, AtomicCSwapLT, AtomicCSwapGE, AtomicCSwapGT:
		return !t.Complex()
	case AtomicBOr, AtomicBAnd, AtomicBXor, AtomicMSwap:
		return t.Integer()
	}
	return true
}
