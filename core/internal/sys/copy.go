// SPDX-License-Identifier: MIT

package sys

import "runtime/debug"

// Copy copies bytes from src to dst, both in this process, until one list ends. A page that cannot
// be accessed results in EFAULT instead of a crash. moved is exact to the entry. Copy modifies both
// lists.
func Copy(dst, src []Iovec) (moved int, err error) {
	was := debug.SetPanicOnFault(true)
	defer faulted(was, &err)
	for {
		dst, src = Advance(dst, 0), Advance(src, 0)
		if len(dst) == 0 || len(src) == 0 {
			debug.SetPanicOnFault(was)
			return moved, nil
		}
		n := int(min(dst[0].Len, src[0].Len))
		copy(Bytes(dst[0].Addr, n), Bytes(src[0].Addr, n))
		moved += n
		dst, src = Advance(dst, uint64(n)), Advance(src, uint64(n))
	}
}
