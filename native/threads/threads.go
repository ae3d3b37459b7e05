// SPDX-License-Identifier: MIT

// Package threads finds out how many threads the system still gives to this process.
package threads

// #include "threads.h"
import "C"

import "syscall"

// Probe starts threads that do nothing, up to wanted at once, and ends them. It returns how many
// the system gave, and with what error it refused the next one, nil if it gave all.
//
// Limits on threads are many: RLIMIT_NPROC for the user, unless it has a capability, pids.max of
// the cgroup and of each above it, kernel.threads-max. Some of them cannot be read in a container.
// Probe asks for their sum.
func Probe(wanted int) (got int, err error) {
	var cause C.int
	got = int(C.mori_threads_probe(C.int(wanted), &cause))
	if cause != 0 {
		err = syscall.Errno(cause)
	}
	return got, err
}
