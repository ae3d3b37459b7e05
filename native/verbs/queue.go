// SPDX-License-Identifier: MIT

package verbs

// #cgo noescape vb_poll
// #cgo nocallback vb_poll
// #cgo noescape vb_next
// #cgo nocallback vb_next
// #cgo nocallback vb_arm
// #include "shim.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// NewChannel makes a completion channel: a descriptor that is readable when one of its queues has
// an event.
func (c Context) NewChannel() (Channel, error) {
	var h C.uint64_t
	if err := check(C.vb_create_channel(c.c(), &h), "create a completion channel of %s", c.Name()); err != nil {
		return 0, err
	}
	return Channel(h), nil
}

// FD returns a non-blocking descriptor. The channel owns it.
func (h Channel) FD() int { return int(C.vb_channel_fd(C.uint64_t(h))) }

// Next reads an event and acknowledges it. It returns the token of an armed queue that has had a
// completion since. syscall.EAGAIN: no event.
func (h Channel) Next() (token uint64, err error) {
	var t C.uint64_t
	switch rc := C.vb_next(C.uint64_t(h), &t); syscall.Errno(rc) {
	case 0:
		return uint64(t), nil
	case syscall.EAGAIN: // unwrapped, for pollers
		return 0, syscall.EAGAIN
	default:
		return 0, check(rc, "read a completion event")
	}
}

// Close frees the channel.
func (h Channel) Close() error {
	return check(C.vb_destroy_channel(C.uint64_t(h)), "destroy a completion channel")
}

// NewCQ creates a completion queue of at least this many entries. If it overflows, it is
// permanently broken (EventCQErr). If h is not 0, its events arrive on the channel h with the
// token.
func (c Context) NewCQ(entries int, h Channel, token uint64) (CQ, error) {
	var q C.uint64_t
	rc := C.vb_create_cq(c.c(), C.int(entries), C.uint64_t(h), C.uint64_t(token), &q)
	if err := check(rc, "create a completion queue of %d entries on %s", entries, c.Name()); err != nil {
		return 0, err
	}
	return CQ(q), nil
}

// Arm requests one event, for the next completion. Poll once more after Arm: earlier completions
// cause no event.
func (q CQ) Arm() error { return check(C.vb_arm(C.uint64_t(q)), "arm a completion queue") }

// Poll reads completions into dst without blocking.
func (q CQ) Poll(dst []WC) (int, error) {
	took := C.vb_poll(C.uint64_t(q), (*C.struct_vb_wc)(unsafe.Pointer(unsafe.SliceData(dst))), C.int(len(dst)))
	if took.err != 0 {
		return int(took.n), fmt.Errorf("poll a completion queue: %w", syscall.Errno(took.err))
	}
	return int(took.n), nil
}

// Close frees the queue.
func (q CQ) Close() error { return check(C.vb_destroy_cq(C.uint64_t(q)), "destroy a completion queue") }
