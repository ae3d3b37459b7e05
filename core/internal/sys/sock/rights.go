// SPDX-License-Identifier: MIT

package sock

import "golang.org/x/sys/unix"

// RightsLen is the space for control messages that carry one descriptor.
var RightsLen = unix.CmsgSpace(4)

// Rights returns the control message that passes fd to the peer of a unix socket (SCM_RIGHTS). fd
// stays open here.
func Rights(fd int) []byte { return unix.UnixRights(fd) }

// ParseRights returns the descriptors that came with a message; the caller closes them. It skips
// malformed control messages and those of other kinds.
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
