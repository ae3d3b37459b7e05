// SPDX-License-Identifier: MIT

package sock

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

// Sendv sends the first sys.IovMax entries of iov on the socket fd with the given MSG_ flags and
// MSG_NOSIGNAL. If the peer has closed, it returns EPIPE and never raises SIGPIPE, whatever the
// host program does with that signal.
func Sendv(fd int, iov []sys.Iovec, flags int) (int, error) {
	var msg unix.Msghdr
	msg.Iov = (*unix.Iovec)(unsafe.Pointer(unsafe.SliceData(iov)))
	msg.SetIovlen(min(len(iov), sys.IovMax))
	for {
		n, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&msg)), uintptr(flags|unix.MSG_NOSIGNAL))
		if errno == 0 {
			return int(n), nil
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// Recvv receives from the socket fd into the first sys.IovMax entries of iov with the given MSG_
// flags. If the entries are not empty, a result of 0 is the end of the stream.
func Recvv(fd int, iov []sys.Iovec, flags int) (int, error) {
	var msg unix.Msghdr
	msg.Iov = (*unix.Iovec)(unsafe.Pointer(unsafe.SliceData(iov)))
	msg.SetIovlen(min(len(iov), sys.IovMax))
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
