// SPDX-License-Identifier: MIT

package socket

import (
	"mori/core/fabric"
	"mori/core/internal/sys"
)

// Gather copies the op's first len(dst) local bytes. It returns EFAULT if the memory cannot be
// read.
func Gather(dst []byte, op *fabric.Op) error {
	return sys.Guard(func() {
		for i := 0; len(dst) > 0; i++ {
			if s := op.LocalSeg(i); s.Len > 0 {
				n := min(s.Len, uint64(len(dst)))
				copy(dst, sys.Bytes(s.Addr, int(n)))
				dst = dst[n:]
			}
		}
	})
}

// Unreadable is the errno of an op whose local memory cannot be read.
const Unreadable = fabric.ErrFault

// AppendLocal appends the op's first n local bytes, or all if there are fewer.
func AppendLocal(iov []sys.Iovec, op *fabric.Op, n uint64) []sys.Iovec {
	for i := 0; i <= len(op.More) && n > 0; i++ {
		s := op.LocalSeg(i)
		if m := min(s.Len, n); m > 0 {
			iov = append(iov, sys.Iovec{Addr: s.Addr, Len: m})
			n -= m
		}
	}
	return iov
}
