// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"runtime"
	"runtime/debug"
	"syscall"
)

// Copy moves bytes from src to dst, both in this process, until one list ends. A page that cannot be touched is EFAULT and not
// the end of the process; moved is exact up to the entry. Entries are used up.
func Copy(dst, src []Iovec) (moved int, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			var fault interface{ Addr() uintptr }
			if e, ok := r.(runtime.Error); !ok || !errors.As(e, &fault) {
				panic(r)
			}
			err = syscall.EFAULT
		}
	}()
	for {
		dst, src = Advance(dst, 0), Advance(src, 0)
		if len(dst) == 0 || len(src) == 0 {
			return moved, nil
		}
		n := int(min(dst[0].Len, src[0].Len))
		copy(Bytes(dst[0].Addr, n), Bytes(src[0].Addr, n))
		moved += n
		dst, src = Advance(dst, uint64(n)), Advance(src, uint64(n))
	}
}
