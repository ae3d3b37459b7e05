// SPDX-License-Identifier: MIT

package stream

import (
	"mori/core/fabric"
	"mori/core/internal/sys"
)

// gather copies the op's first len(dst) local bytes. Memory that cannot be read is EFAULT.
func gather(dst []byte, op *fabric.Op) error {
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

// unreadable is what an op ends with whose local memory was not there to be sent.
const (
	unreadable     = fabric.ErrFault
	unreadableText = "the local buffer is not mapped: was it freed before the op ended?"
	unwritableText = "the local buffer is not mapped for writing: was it freed before the op ended?"
)

// appendLocal appends the op's first n local bytes, or all if there are fewer.
func appendLocal(iov []sys.Iovec, op *fabric.Op, n uint64) []sys.Iovec {
	for i := 0; i <= len(op.More) && n > 0; i++ {
		s := op.LocalSeg(i)
		if m := min(s.Len, n); m > 0 {
			iov = append(iov, sys.Iovec{Addr: s.Addr, Len: m})
			n -= m
		}
	}
	return iov
}
