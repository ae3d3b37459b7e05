// SPDX-License-Identifier: MIT

// Package memory is the memory that an emulated NIC accesses: how to read and write its bytes, and
// which regions a protection domain may access.
package memory

import (
	"encoding/binary"
	"runtime"

	"mori/core/gpunic/mlx5"
	"mori/core/internal/sys"
)

// A Memory accesses bytes that this process cannot access directly. The NIC's thread calls its
// methods, one at a time. They return when the bytes have moved, and must not call methods of the
// NIC.
type Memory interface {
	Read(addr uint64, b []byte) error
	Write(addr uint64, b []byte) error
}

// words is an optional interface of a Memory that can change a word of width 4 or 8 atomically with
// respect to other accesses of this process.
type words interface {
	change(addr uint64, width int, f func(old uint64) uint64) (old uint64, err error)
}

// Host is this process's memory. Accessing an unmapped page results in EFAULT.
type Host struct{}

var _ words = Host{}

// Read copies from addr to b.
func (Host) Read(addr uint64, b []byte) error {
	err := sys.Move(sys.AddrOf(b), addr, uint64(len(b)))
	runtime.KeepAlive(b)
	return err
}

// Write copies b to addr.
func (Host) Write(addr uint64, b []byte) error {
	err := sys.Move(addr, sys.AddrOf(b), uint64(len(b)))
	runtime.KeepAlive(b)
	return err
}

func (Host) change(addr uint64, width int, f func(uint64) uint64) (old uint64, err error) {
	err = sys.Guard(func() {
		for swapped := false; !swapped; {
			if width == 4 {
				was := sys.Load32(addr)
				old, swapped = uint64(was), sys.CompareAndSwap32(addr, was, uint32(f(uint64(was))))
			} else {
				old = sys.Load64(addr)
				swapped = sys.CompareAndSwap64(addr, old, f(old))
			}
		}
	})
	return old, err
}

// Change changes a word. If the memory does not support atomics, the change is atomic only with
// respect to other work of this NIC, as with real NICs.
func Change(m Memory, addr uint64, width int, f func(uint64) uint64) (old uint64, err error) {
	if w, ok := m.(words); ok {
		return w.change(addr, width, f)
	}
	b := make([]byte, 8)
	if err = m.Read(addr, b[:width]); err != nil {
		return 0, err
	}
	old = binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(b, f(old))
	return old, m.Write(addr, b[:width])
}

// StoreLast writes the 8 bytes of b at addr, in one store if the memory supports it.
func StoreLast(m Memory, addr uint64, b []byte) {
	if _, plain := m.(Host); plain {
		_ = sys.Guard(func() { sys.Store64(addr, binary.LittleEndian.Uint64(b)) })
	} else {
		_ = m.Write(addr, b)
	}
}

// Operate returns the result of an atomic on the word v.
func Operate(opcode uint8, a mlx5.Atomic, v uint64) uint64 {
	switch opcode {
	case mlx5.OpFetchAdd:
		return v + a.Swap
	case mlx5.OpCompareSwap:
		if v == a.Compare {
			return a.Swap
		}
		return v
	case mlx5.OpMaskedSwap:
		if v&a.CompareMsk == a.Compare&a.CompareMsk {
			return v&^a.SwapMask | a.Swap&a.SwapMask
		}
		return v
	}
	// Masked add: no carry crosses the top bits of fields, which SwapMask contains.
	low := (v &^ a.SwapMask) + (a.Swap &^ a.SwapMask)
	return low ^ (v^a.Swap)&a.SwapMask
}

// A Record is a doorbell record: words of memory in which the poster counts its posted entries.
type Record struct {
	Mem  Memory
	Addr uint64
}

// Word returns the big-endian word at an offset, or 0 if the memory is unmapped.
func (r Record) Word(at uint64) uint32 {
	var b [4]byte
	if err := r.Mem.Read(r.Addr+at, b[:]); err != nil {
		return 0
	}
	return binary.BigEndian.Uint32(b[:])
}
