// SPDX-License-Identifier: MIT

package sys

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// IovMax is the most Iovecs that the kernel accepts in one call (UIO_MAXIOV).
const IovMax = 1024

// An Iovec is a range of memory of this or another process, laid out as the kernel's struct iovec.
type Iovec struct {
	Addr uint64
	Len  uint64
}

// This fails to compile on platforms whose struct iovec has another size.
var _ [unsafe.Sizeof(unix.Iovec{})]byte = [unsafe.Sizeof(Iovec{})]byte{}

// Advance drops the first n bytes of iov, and empty entries in front of the rest. If n ends inside
// an entry, Advance changes that entry. It returns what remains.
func Advance(iov []Iovec, n uint64) []Iovec {
	for len(iov) > 0 && iov[0].Len <= n {
		n -= iov[0].Len
		iov = iov[1:]
	}
	if len(iov) > 0 {
		iov[0].Addr += n
		iov[0].Len -= n
	}
	return iov
}
