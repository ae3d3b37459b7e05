// SPDX-License-Identifier: MIT

package ep

import (
	"unsafe"

	"mori/core/memory"
)

// int32s is the array of n numbers at addr, whose owner keeps it.
func int32s(addr uint64, n int) []int32 {
	b := memory.Bytes(addr, uint64(n)*int32Bytes)
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// float32s is the array of n numbers at addr, whose owner keeps it.
func float32s(addr uint64, n int) []float32 {
	b := memory.Bytes(addr, uint64(n)*float32Bytes)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// addrOfInt32s is where s begins. The caller keeps it alive.
func addrOfInt32s(s []int32) uint64 {
	return memory.AddrOf(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int32Bytes))
}
