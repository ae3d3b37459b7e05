// SPDX-License-Identifier: MIT

package abi

import "unsafe"

// Bytes returns the memory of a struct, as kernels read and write it. It is not a copy.
func Bytes[T Struct](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// SliceBytes returns the memory of structs that lie one after the other. It is not a copy.
func SliceBytes[T Struct](all []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(all))), uintptr(len(all))*unsafe.Sizeof(*new(T)))
}
