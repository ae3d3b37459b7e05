// SPDX-License-Identifier: MIT

// Package threads measures how many more threads the system allows this process.
package threads

// #include "threads.h"
import "C"

import "syscall"

// Probe starts up to wanted idle threads at once, and ends them. It returns how many the system
// allowed, and the error for the next one, or nil if it allowed all.
//
// Several limits apply: RLIMIT_NPROC for the user, unless it has a capability, pids.max of the
// cgroup and its parents, and kernel.threads-max. A container cannot read all of them. Probe
// measures their combined effect.
func Probe(wanted int) (got int, err error) {
	var cause C.int
	got = int(C.mori_threads_probe(C.int(wanted), &cause))
	if cause != 0 {
		err = syscall.Errno(cause)
	}
	return got, err
}
