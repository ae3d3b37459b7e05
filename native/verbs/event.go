// SPDX-License-Identifier: MIT

package verbs

// #include "shim.h"
import "C"

// AsyncFD is readable when AsyncEvent has something. It is non-blocking, and stays the context's.
func (c Context) AsyncFD() int { return int(C.vb_async_fd(c.c())) }

// AsyncEvent reads the next event and acknowledges it. syscall.EAGAIN says that there is none; EIO after an EventDeviceFatal that the device
// is gone.
func (c Context) AsyncEvent() (AsyncEvent, error) {
	var e C.struct_vb_event
	if rc := C.vb_async_event(c.c(), &e); rc != 0 {
		return AsyncEvent{}, again(rc, "read an event of "+c.Name())
	}
	return AsyncEvent{Kind: EventKind(e.kind), Port: int(e.port), QPNum: uint32(e.qp_num), CQ: CQ(e.cq)}, nil
}
