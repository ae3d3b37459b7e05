// SPDX-License-Identifier: MIT

package sock

import (
	"fmt"

	"golang.org/x/sys/unix"

	"mori/core/internal/sys"
)

// A Cred identifies the process at the other end of a unix socket. PID is 0 if that process is not
// visible in our pid namespace.
type Cred struct {
	PID      int
	UID, GID uint32
}

// PeerCred returns the process that connected the unix socket fd, or listened for it (SO_PEERCRED).
func PeerCred(fd int) (Cred, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Cred{}, fmt.Errorf("peer credentials of socket %d: %w", fd, err)
	}
	return Cred{PID: int(c.Pid), UID: c.Uid, GID: c.Gid}, nil
}

// HungUp reports, without blocking, whether the peer of socket fd has closed its end, or fd is
// broken. It ignores pending data.
func HungUp(fd int) bool { return sys.Poll(fd, unix.POLLRDHUP) }
