// SPDX-License-Identifier: MIT

package pybind

// #include <stdlib.h>
// #include "fast.h"
import "C"

import (
	"time"
	"unsafe"

	"mori/io"
)

// moriPost submits the transfer that C describes. If its gate is wrong, *why is the text of an
// error, which C frees. It answers MORI_WOULD_WAIT where a connection must be made first and
// may_wait is 0.
//
//export moriPost
func moriPost(t *C.mori_transfer, out *C.mori_status_ref, why **C.char) (answer C.int) {
	defer rescue(&answer)
	s, err := sessions.get(uint64(t.session))
	if err != nil {
		return C.MORI_STALE
	}
	after, err := afterOf(t)
	if err != nil {
		*why = C.CString(err.Error())
		return C.MORI_OK
	}
	if s.Session == nil {
		refused := io.NewStatus()
		refused.Update(s.refusal.Code(), s.refusal.Message())
		give(refused, out)
		return C.MORI_OK
	}
	if t.may_wait == 0 && !s.Ready() {
		return C.MORI_WOULD_WAIT
	}
	r := io.Request{
		Write: t.write != 0, Local: words(t.local, t.nlocal), Remote: words(t.remote, t.nremote), BlockSize: uint64(t.block_size),
		UID: uint64(t.uid), Tag: C.GoStringN(t.tag, C.int(t.ntag)), After: after, Deadline: deadlineOf(t),
	}
	if t.block_size == 0 {
		r.Sizes = words(t.sizes, t.nsizes)
	}
	give(s.Submit(&r), out)
	return C.MORI_OK
}

func deadlineOf(t *C.mori_transfer) time.Duration {
	switch {
	case t.deadline_ms < 0:
		return 0 // the session's
	case t.deadline_ms == 0:
		return io.NoDeadline
	}
	return time.Duration(t.deadline_ms) * time.Millisecond
}

// afterOf returns the gate of a transfer: a stream or an event of the caller's, on the GPU with
// a number.
func afterOf(t *C.mori_transfer) (a io.After, err error) {
	if t.after == C.MORI_AFTER_NOTHING {
		return io.After{}, nil
	}
	defer guard(&err)
	d, err := gpuAt(int(min(uint64(t.after_gpu), 1<<31)))
	if err != nil {
		return io.After{}, err
	}
	if t.after == C.MORI_AFTER_STREAM {
		return io.AfterStream(d.BorrowStream(uint64(t.after_handle))), nil
	}
	return io.AfterEvent(d.BorrowEvent(uint64(t.after_handle))), nil
}

// words views n numbers at p, which C keeps alive during the call.
func words(p *C.uint64_t, n C.int64_t) []uint64 {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), int(n))
}
