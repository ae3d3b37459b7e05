// SPDX-License-Identifier: MIT

package reliability

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidCMA makes the kernel refuse process_vm_readv and process_vm_writev to all threads of this
// process from now on, as container runtimes do.
func forbidCMA() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	const load, jump, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load, K: 0}, // seccomp_data.nr
		{Code: jump, K: unix.SYS_PROCESS_VM_READV, Jt: 1},
		{Code: jump, K: unix.SYS_PROCESS_VM_WRITEV, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("install a seccomp filter: %w", e)
	}
	return nil
}
