// SPDX-License-Identifier: MIT

// Package view reads memory that callers name by address as slices of numbers.
package view

import (
	"unsafe"

	"mori/core/memory"
)

// A Number is an element of the arrays that callers of package ep name.
type Number interface{ int32 | float32 }

// Of returns the array of n numbers at addr. The owner of the memory keeps it alive.
func Of[T Number](addr uint64, n int) []T {
	var one T
	b := memory.Bytes(addr, uint64(n)*uint64(unsafe.Sizeof(one)))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Addr returns the address of the first element of s. The caller keeps s alive.
func Addr[T Number](s []T) uint64 {
	b := (*byte)(unsafe.Pointer(unsafe.SliceData(s)))
	var one T
	return memory.AddrOf(unsafe.Slice(b, len(s)*int(unsafe.Sizeof(one))))
}
