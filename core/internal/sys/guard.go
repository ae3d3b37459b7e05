// SPDX-License-Identifier: MIT

package sys

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
)

// Guard runs f, in which to touch a page that cannot be touched is EFAULT and not the end of the
// process. f has ended at that place then: locks that it holds are to be given up by defer. Other
// panics go on.
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

// isFault reports whether a panic is one of SetPanicOnFault, which has the address, or of an
// address in the first page, which does not.
func isFault(r any) bool {
	e, ok := r.(runtime.Error)
	if !ok {
		return false
	}
	var fault interface{ Addr() uintptr }
	return errors.As(e, &fault) || strings.Contains(e.Error(), "invalid memory address")
}
