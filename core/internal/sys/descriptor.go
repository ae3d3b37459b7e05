// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pidfd opens a descriptor that becomes readable when process pid ends. It is non-blocking, so that
// os.NewFile uses the netpoller. ESRCH if the process does not exist.
func Pidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, syscall.EINVAL) { // kernels before 5.10 do not have the flag
		if fd, err = unix.PidfdOpen(pid, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open pidfd of process %d: %w", pid, err)
	}
	return fd, nil
}

// Readable reports, without blocking, whether fd has data to read, is at its end, or is broken.
func Readable(fd int) bool { return Poll(fd, unix.POLLIN) }

// Poll reports, without blocking, whether fd has one of the events of poll(2), or is broken.
func Poll(fd int, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(p, 0)
		if err != syscall.EINTR {
			return n > 0 || err != nil
		}
	}
}
