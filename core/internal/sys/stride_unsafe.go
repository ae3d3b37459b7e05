// SPDX-License-Identifier: MIT

package sys

import "runtime/debug"

// MoveStrided copies count elements of size bytes, in order. They lie dstep bytes apart at dst and
// sstep bytes apart at src. Its errors are those of Move.
func MoveStrided(dst, dstep, src, sstep, size, count uint64) (err error) {
	was := debug.SetPanicOnFault(true)
	defer faulted(was, &err)
	switch size {
	case 1:
		strided[uint8](dst, dstep, src, sstep, count)
	case 2:
		strided[uint16](dst, dstep, src, sstep, count)
	case 4:
		strided[uint32](dst, dstep, src, sstep, count)
	case 8:
		strided[uint64](dst, dstep, src, sstep, count)
	default:
		for range count {
			copy(Bytes(dst, int(size)), Bytes(src, int(size)))
			dst, src = dst+dstep, src+sstep
		}
	}
	debug.SetPanicOnFault(was)
	return nil
}

// strided is MoveStrided for elements that fit a register. They may lie at any address.
func strided[T uint8 | uint16 | uint32 | uint64](dst, dstep, src, sstep, count uint64) {
	for range count {
		*(*T)(pointer(dst)) = *(*T)(pointer(src))
		dst, src = dst+dstep, src+sstep
	}
}
