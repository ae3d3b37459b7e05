// SPDX-License-Identifier: MIT

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The values of kernel.yama.ptrace_scope.
const (
	PtraceClassic    = 0 // same user is enough; also used if Yama is not built in
	PtraceRestricted = 1 // descendants, or processes named with PR_SET_PTRACER
	PtraceAdmin      = 2 // CAP_SYS_PTRACE only
	PtraceNone       = 3 // nobody
)

// PtraceScope reads kernel.yama.ptrace_scope, which also decides which processes may use Read and
// Write on each other.
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

// AllowPtrace lets processes of the same user access this one if Yama is restricted. A process can
// set only one such permission (PR_SET_PTRACER), so AllowPtrace sets it for any of the user's
// processes. EINVAL if Yama is not available.
func AllowPtrace() error {
	const anyProcess = ^uintptr(0) // PR_SET_PTRACER_ANY
	if err := unix.Prctl(unix.PR_SET_PTRACER, anyProcess, 0, 0, 0); err != nil {
		return fmt.Errorf("set ptracer: %w", err)
	}
	return nil
}
