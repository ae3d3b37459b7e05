// SPDX-License-Identifier: MIT

package pybind

// #include <stdlib.h>
// #include "fast.h"
import "C"

import "mori/io"

// afterOf is the gate of a transfer: a stream or an event of others, on the GPU with a number.
func afterOf(onStream bool, handle, number uint64) (a io.After, err error) {
	defer guard(&err)
	d, err := gpuAt(int(min(number, 1<<31)))
	if err != nil {
		return io.After{}, err
	}
	if onStream {
		return io.AfterStream(d.BorrowStream(handle)), nil
	}
	return io.AfterEvent(d.BorrowEvent(handle)), nil
}

// moriPostAfter is moriPost behind a GPU. Where the gate itself is wrong it gives the text of an error, which C frees.
//
//export moriPostAfter
func moriPostAfter(id C.uint64_t, write C.int, lo, ro, sz *C.uint64_t, nlo, nro, nsz C.int64_t, one C.int, size, uid C.uint64_t, tag *C.char, ntag C.int64_t,
	onStream C.int, handle, gpu C.uint64_t, mayWait C.int, out *C.mori_status_ref, complaint **C.char) (answer C.int) {
	defer rescue(&answer)
	s, err := sessions.get(uint64(id))
	if err != nil {
		return C.MORI_STALE
	}
	after, err := afterOf(onStream != 0, uint64(handle), uint64(gpu))
	if err != nil {
		*complaint = C.CString(err.Error())
		return C.MORI_OK
	}
	if s.Session == nil {
		refused := io.NewStatus()
		refused.Update(s.refusal.Code(), s.refusal.Message())
		give(refused, out)
		return C.MORI_OK
	}
	if mayWait == 0 && !s.Ready() {
		return C.MORI_WOULD_WAIT
	}
	b := batch{lo: words(lo, nlo), ro: words(ro, nro), one: one != 0, size: uint64(size), uid: uint64(uid), tag: C.GoStringN(tag, C.int(ntag)), after: after}
	if !b.one {
		b.sz = words(sz, nsz)
	}
	give(b.submit(s.Session, write != 0), out)
	return C.MORI_OK
}
