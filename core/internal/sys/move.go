// SPDX-License-Identifier: MIT

package sys

import (
	"runtime/debug"
	"syscall"
)

// Move copies n bytes within this process, also between places that overlap. A page that cannot be touched is EFAULT and not the end of
// the process; some bytes may have been copied then.
func Move(dst, src, n uint64) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil { // nothing else here panics
			err = syscall.EFAULT
		}
	}()
	copy(Bytes(dst, int(n)), Bytes(src, int(n)))
	return nil
}
