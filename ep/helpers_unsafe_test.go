// SPDX-License-Identifier: MIT

package ep

import (
	"unsafe"

	"mori/core/memory"
)

// addrOfFloat32s is where s begins. The caller keeps it alive.
func addrOfFloat32s(s []float32) uint64 {
	return memory.AddrOf(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*float32Bytes))
}
