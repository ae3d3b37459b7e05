// SPDX-License-Identifier: MIT

package atomics

import (
	"encoding/binary"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/internal/sys"
)

// MaxBytes is the bytes of one atomic op of providers that use Execute.
const MaxBytes = 4096

// Query answers fabric.AtomicQuerier for providers that use Execute, which has every op that means
// anything.
func Query(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType) (count int, err error) {
	if !fabric.AtomicValid(kind, op, t) {
		return 0, fmt.Errorf("query %v %v of %v: %w", kind, op, t, fabric.ErrInvalid)
	}
	return MaxBytes / t.Size(), nil
}

// Aligned reports whether addr is where an element of type t may be: at a multiple of its
// size.
func Aligned(addr uint64, t fabric.DataType) bool { return addr&uint64(t.Size()-1) == 0 }

// Execute applies an op that CheckOp found good to the memory at addr, which Aligned found
// good, and whose bounds and rights were checked. operand may be nil for AtomicRead, result for
// OpAtomic; compare is for OpCompareAtomic. All that is given is equally long and overlaps with
// nothing.
//
// Each element is one atomic step, an op of several is not. Elements of 4 and 8 bytes change by the
// CPU's own atomics, and may be used with those by anybody. Others are atomic among the calls of
// Execute of this process only, and so is memory that is used with types of different sizes not at
// all. AtomicRead writes nothing at addr.
//
// Comparisons are Go's: NaN is less than, greater than and equal to nothing, so that min and max
// leave what is there if one of both is NaN; the zeros are equal.
func Execute(kind fabric.OpKind, op fabric.AtomicOp, t fabric.DataType, addr uint64, operand, compare, result []byte) {
	if op == fabric.AtomicRead {
		operand = result
	}
	if kind != fabric.OpCompareAtomic {
		compare = operand // not looked at
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

// element applies op to the element at addr and returns what was there.
func element(op fabric.AtomicOp, t fabric.DataType, size int, addr, v, c uint64) uint64 {
	switch size {
	case 8:
		if op == fabric.AtomicSum && t.Integer() {
			return sys.Add64(addr, v) - v // does not start over when others are at the same word
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

// stripes are the locks of elements that the CPU does not change in one step, by address, each in a
// cache line of its own.
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

// load is the element of size bytes, at most 8, in front of b.
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

// store is the reverse.
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
