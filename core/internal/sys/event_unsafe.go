// SPDX-License-Identifier: MIT

package sys

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Event makes an eventfd, which is readable from EventSet to EventClear. The caller closes it with
// CloseFD.
func Event() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("make event descriptor: %w", err)
	}
	return fd, nil
}

// EventSet makes a descriptor of Event readable. Neither EventSet nor EventClear blocks or fails on
// an open descriptor.
func EventSet(fd int) {
	count := uint64(1)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count))
}

// EventClear makes a descriptor of Event not readable.
func EventClear(fd int) {
	var count uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&count)), unsafe.Sizeof(count))
}
