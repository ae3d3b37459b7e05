// SPDX-License-Identifier: MIT

package vm

import (
	"fmt"
	"os"

	"mori/core/internal/sys"
)

// Allowed reports whether processes of one user may copy each other's memory, and why. It first
// tries the call on this process, which detects a seccomp filter, then checks Yama for other
// processes.
func Allowed() (ok bool, reason string) {
	var word [8]byte
	at := []sys.Iovec{{Addr: sys.AddrOf(word[:]), Len: 8}}
	if _, err := Read(os.Getpid(), at, at); err != nil {
		return false, fmt.Sprintf("process_vm_readv is refused (%v): a seccomp filter or a kernel without CONFIG_CROSS_MEMORY_ATTACH", err)
	}
	scope, err := PtraceScope()
	switch {
	case err != nil:
		return false, fmt.Sprintf("unknown: %v", err)
	case scope == PtraceClassic:
		return true, "allowed between processes of one user"
	case scope == PtraceRestricted:
		return true, "allowed if the target agrees, which mori does (kernel.yama.ptrace_scope is 1)"
	case scope == PtraceAdmin && os.Geteuid() == 0:
		return true, "allowed for root (kernel.yama.ptrace_scope is 2)"
	}
	return false, fmt.Sprintf("kernel.yama.ptrace_scope is %d; set it to 0 or 1", scope)
}
