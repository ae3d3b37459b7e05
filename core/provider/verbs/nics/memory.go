// SPDX-License-Identifier: MIT

package nics

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// memlock is the limit on memory that this process may lock. Each registration locks memory.
type memlock struct {
	bytes uint64
	free  bool // no limit, because of a capability
	err   error
}

func lockedMemory() memlock {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return memlock{err: err}
	}
	caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	err := unix.Capget(&caps, &has[0])
	return memlock{bytes: r.Cur, free: err == nil && has[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0}
}

// enoughLocked is a limit that a KV cache may fit into.
const enoughLocked = 64 << 30

func (m memlock) check() Check {
	switch {
	case m.err != nil:
		return Check{false, fmt.Sprintf("the limit of locked memory is unknown: %v", m.err)}
	case m.free:
		return Check{true, "unlimited (CAP_IPC_LOCK)"}
	case m.bytes == unix.RLIM_INFINITY:
		return Check{true, "unlimited"}
	case m.bytes >= enoughLocked:
		return Check{true, fmt.Sprintf("%d GiB may be locked", m.bytes>>30)}
	}
	return Check{false, fmt.Sprintf("only %d KiB may be locked, and registering memory locks it", m.bytes>>10)}
}

// mayUse reports whether this process may read and write a file.
func mayUse(file string) error { return unix.Access(file, unix.R_OK|unix.W_OK) }

func (s *sight) gpuDirect() Check {
	can, why := s.host.GPUDirect(s.root)
	return Check{can, why}
}
