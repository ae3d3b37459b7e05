// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
)

// Guard runs f. If f accesses a page that cannot be accessed, Guard returns EFAULT instead of
// crashing the process. f stops at that point, so it must release locks with defer. Guard does not
// recover other panics.
func Guard(f func()) (err error) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if r := recover(); r != nil {
			if !isFault(r) {
				panic(r)
			}
			err = syscall.EFAULT
		}
	}()
	f()
	return nil
}

// isFault reports whether a panic is a memory fault: one of SetPanicOnFault, which has the address,
// or one in the first page, which does not.
func isFault(r any) bool {
	e, ok := r.(runtime.Error)
	if !ok {
		return false
	}
	var fault interface{ Addr() uintptr }
	return errors.As(e, &fault) || strings.Contains(e.Error(), "invalid memory address")
}
