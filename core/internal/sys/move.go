// SPDX-License-Identifier: MIT

package sys

import (
	"runtime/debug"
	"syscall"
)

// Move copies n bytes within this process, also between places that overlap. A page that cannot be touched is EFAULT and not the end of
// the process; some bytes may have been copied then.
func Move(dst, src, n uint64) (err error) {
	was := debug.SetPanicOnFault(true)
	defer faulted(was, &err)
	copy(Bytes(dst, int(n)), Bytes(src, int(n)))
	debug.SetPanicOnFault(was) // not deferred: that takes longer than to copy a few bytes
	return nil
}

// faulted turns a panic into an error; nothing but a fault panics here.
func faulted(was bool, err *error) {
	if recover() != nil {
		debug.SetPanicOnFault(was)
		*err = syscall.EFAULT
	}
}
