// SPDX-License-Identifier: MIT

package sys

import (
	"runtime/debug"
	"syscall"
)

// Move copies n bytes within this process, also between places that overlap. A page that cannot be
// touched is EFAULT and not the end of the process; some bytes may have been copied then.
func Move(dst, src, n uint64) (err error) {
	was := debug.SetPanicOnFault(true)
	defer faulted(was, &err)
	CopyRange(dst, src, n)
	debug.SetPanicOnFault(was) // not deferred: that takes longer than to copy a few bytes
	return nil
}

// Go's memmove writes past the caches from 1 MiB on (amd64). The caches take this much and are
// faster, also for who reads it next: 21 us per MiB, where past them it is 19 if the memory has
// nothing else to do, and 37 if it has (EPYC, 32 MiB of L3). From cachedEnd on, writing past them
// takes half the time.
const (
	cachedPart = 512 << 10
	cachedEnd  = 16 << 20
)

// CopyRange copies n bytes within this process, also between places that overlap.
func CopyRange(dst, src, n uint64) {
	if n < cachedEnd && dst-src >= n { // dst is not behind the begin of src, inside of it
		for ; n > cachedPart; n -= cachedPart {
			copy(Bytes(dst, cachedPart), Bytes(src, cachedPart))
			dst, src = dst+cachedPart, src+cachedPart
		}
	}
	copy(Bytes(dst, int(n)), Bytes(src, int(n)))
}

// faulted turns a panic into an error; nothing but a fault panics here.
func faulted(was bool, err *error) {
	if recover() != nil {
		debug.SetPanicOnFault(was)
		*err = syscall.EFAULT
	}
}
