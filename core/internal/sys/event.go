// SPDX-License-Identifier: MIT

package sys

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Event makes a descriptor that poll finds readable from EventSet to EventClear (eventfd). The caller closes it with CloseFD.
func Event() (int, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("make event descriptor: %w", err)
	}
	return fd, nil
}

var eventOne = binary.NativeEndian.AppendUint64(nil, 1)

// EventSet makes a descriptor of Event readable. Neither call can fail on one that is open, or block.
func EventSet(fd int) { _, _ = unix.Write(fd, eventOne) }

// EventClear makes a descriptor of Event not readable.
func EventClear(fd int) {
	var count [8]byte
	_, _ = unix.Read(fd, count[:])
}
