// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Recvv receives from the socket fd into the first IovMax entries of iov with the given MSG_ flags.
// 0 with entries of some length is the end of the stream.
func Recvv(fd int, iov []Iovec, flags int) (int, error) {
	var msg unix.Msghdr
	msg.Iov = (*unix.Iovec)(unsafe.Pointer(unsafe.SliceData(iov)))
	msg.SetIovlen(min(len(iov), IovMax))
	for {
		n, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), uintptr(flags))
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}
