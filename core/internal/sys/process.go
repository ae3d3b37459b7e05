// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Cred identifies the process at the other end of a unix socket. PID is 0 when that process is
// not visible in our pid namespace.
type Cred struct {
	PID      int
	UID, GID uint32
}

// PeerCred asks the kernel who connected the unix socket fd, or listened for it (SO_PEERCRED).
func PeerCred(fd int) (Cred, error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Cred{}, fmt.Errorf("peer credentials of socket %d: %w", fd, err)
	}
	return Cred{PID: int(c.Pid), UID: c.Uid, GID: c.Gid}, nil
}

// Pidfd opens a descriptor that becomes readable when process pid ends. It is non-blocking, so
// os.NewFile puts it under the netpoller. ESRCH: no such process.
func Pidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, syscall.EINVAL) { // kernels before 5.10 have no such flag
		if fd, err = unix.PidfdOpen(pid, 0); err == nil {
			err = unix.SetNonblock(fd, true)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("open pidfd of process %d: %w", pid, err)
	}
	return fd, nil
}

// Readable reports at once whether fd has something to read, is at its end, or is broken.
func Readable(fd int) bool { return polled(fd, unix.POLLIN) }

func polled(fd int, events int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(p, 0)
		if err != syscall.EINTR {
			return n > 0 || err != nil
		}
	}
}

// HungUp reports at once whether the peer of socket fd has closed its end, or fd is broken. Data
// that waits does not matter.
func HungUp(fd int) bool { return polled(fd, unix.POLLRDHUP) }

// The values of kernel.yama.ptrace_scope.
const (
	PtraceClassic    = 0 // same user is enough; also where Yama is not built in
	PtraceRestricted = 1 // descendants, or processes named with PR_SET_PTRACER
	PtraceAdmin      = 2 // CAP_SYS_PTRACE only
	PtraceNone       = 3 // nobody
)

// PtraceScope reads kernel.yama.ptrace_scope, which also decides who may use VMRead and VMWrite on
// whom.
func PtraceScope() (int, error) {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	if errors.Is(err, fs.ErrNotExist) {
		return PtraceClassic, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read ptrace scope: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("read ptrace scope %q: %w", b, err)
	}
	return n, nil
}

// AllowPtrace lets processes of the same user reach this one where Yama is restricted. A process
// has only one such grant (PR_SET_PTRACER), so it is given to any of the user's processes. EINVAL:
// Yama is not there.
func AllowPtrace() error {
	const anyProcess = ^uintptr(0) // PR_SET_PTRACER_ANY
	if err := unix.Prctl(unix.PR_SET_PTRACER, anyProcess, 0, 0, 0); err != nil {
		return fmt.Errorf("set ptracer: %w", err)
	}
	return nil
}

// Yield lets other threads run on this processor, if there are any (sched_yield).
func Yield() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
