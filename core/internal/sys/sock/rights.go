// SPDX-License-Identifier: MIT

package sock

import "golang.org/x/sys/unix"

// RightsLen is the space for control messages that carry one descriptor.
var RightsLen = unix.CmsgSpace(4)

// Rights is the control message that hands fd to the peer of a unix socket (SCM_RIGHTS). fd stays
// ours as well.
func Rights(fd int) []byte { return unix.UnixRights(fd) }

// ParseRights lists the descriptors that came with a message; they are the caller's to close.
// Control messages of other kinds and broken ones are passed over.
func ParseRights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range messages {
		if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}
