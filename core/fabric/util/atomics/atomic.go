// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// MaxBytes is the largest atomic op of a provider that uses Execute, in bytes.
const MaxBytes = 4096

// Query implements fabric.AtomicQuerier for providers that use Execute, which supports every valid
// op.
func Query(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (count int, err error) {
	if !fabric.AtomicValid(kind, op, t) {
		return 0, fmt.Errorf("query %v %v of %v: %w", kind, op, t, fabric.ErrInvalid)
	}
	return MaxBytes / t.Size(), nil
}

// Aligned reports whether addr is aligned for an element of type t, that is, to its size.
func Aligned(addr uint64, t fabric.DataType) bool { return addr&uint64(t.Size()-1) == 0 }

// Execute applies an atomic op to the memory at addr. The caller has checked the op (CheckOp), the
// alignment (Aligned), bounds and rights. operand may be nil for AtomicRead, result for OpAtomic;
// compare is for OpCompareAtomic. All slices have the same length and do not overlap.
//
// Each element is updated atomically, but the op as a whole is not atomic. Elements of 4 and 8
// bytes use the CPU's atomics, so any other code may use those on the same memory. Elements of
// other sizes are atomic only among the calls of Execute in this process. Accesses to the same
// memory with types of different sizes are not atomic to each other. AtomicRead writes nothing at
// addr.
//
// Comparisons follow Go: NaN is not less than, greater than or equal to anything, so min and max
// keep the target's value if either is NaN. The two zeros are equal.
func Execute(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType, addr uint64, operand, compare, result []byte) {
	if op == fabric.AtomicRead {
		operand = result
	}
	if kind != fabric.OpCompareAtomic {
		compare = operand // ignored
	}
	if t == fabric.Complex128 {
		execute128(op, addr, operand, compare, result)
		return
	}
	size := t.Size()
	for i := 0; i < len(operand); i += size {
		old := element(op, t, size, addr+uint64(i), load(operand[i:], size), load(compare[i:], size))
		if result != nil {
			store(result[i:], size, old)
		}
	}
}

// element applies op to the element at addr and returns the previous value.
func element(op fabric.AtomicOp, t fabric.DataType, size int, addr, v, c uint64) uint64 {
	switch size {
	case 8:
		if op == fabric.AtomicSum && t.Integer() {
			return sys.Add64(addr, v) - v // needs no retry loop under contention
		}
		for {
			x := sys.Load64(addr)
			if y := combine(op, t, x, v, c); y == x || sys.CompareAndSwap64(addr, x, y) {
				return x
			}
		}
	case 4:
		for {
			x := sys.Load32(addr)
			if y := uint32(combine(op, t, uint64(x), v, c)); y == x || sys.CompareAndSwap32(addr, x, y) {
				return uint64(x)
			}
		}
	}
	defer lock(addr).Unlock()
	at := sys.Bytes(addr, size)
	x := load(at, size)
	if y := combine(op, t, x, v, c); y != x {
		store(at, size, y)
	}
	return x
}

func execute128(op fabric.AtomicOp, addr uint64, operand, compare, result []byte) {
	const size = 16
	for i := 0; i < len(operand); i += size {
		x := element128(op, addr+uint64(i), load128(operand[i:]), load128(compare[i:]))
		if result != nil {
			store128(result[i:], x)
		}
	}
}

// element128 is element for complex numbers.
func element128(op fabric.AtomicOp, addr uint64, v, c complex128) complex128 {
	defer lock(addr).Unlock()
	at := sys.Bytes(addr, 16)
	x := load128(at)
	if op != fabric.AtomicRead {
		store128(at, common(op, x, v, c))
	}
	return x
}

// stripes are locks for the elements that the CPU cannot update atomically, chosen by address, each
// in its own cache line.
var stripes [64]struct {
	sync.Mutex
	_ [56]byte
}

// lock takes the lock of the element at addr.
func lock(addr uint64) *sync.Mutex {
	mu := &stripes[addr/16%uint64(len(stripes))].Mutex
	mu.Lock()
	return mu
}

// load returns the element of size bytes, at most 8, at the start of b.
func load(b []byte, size int) uint64 {
	switch size {
	case 8:
		return binary.NativeEndian.Uint64(b)
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	case 2:
		return uint64(binary.NativeEndian.Uint16(b))
	}
	return uint64(b[0])
}

// store is the inverse of load.
func store(b []byte, size int, v uint64) {
	switch size {
	case 8:
		binary.NativeEndian.PutUint64(b, v)
	case 4:
		binary.NativeEndian.PutUint32(b, uint32(v))
	case 2:
		binary.NativeEndian.PutUint16(b, uint16(v))
	default:
		b[0] = byte(v)
	}
}
