// SPDX-License-Identifier: MIT

package verbs

// #include "shim.h"
import "C"

import "syscall"

// An EventKind is the kind of an AsyncEvent.
type EventKind uint8

// Kinds of events.
const (
	EventCQErr EventKind = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

func (k EventKind) String() string {
	return text([]string{
		"completion queue error", "queue pair fatal error", "queue pair request error", "queue pair access error", "communication established",
		"send queue drained", "path migrated", "path migration failed", "device fatal error", "port active", "port error", "LID changed",
		"P_Key table changed", "subnet manager changed", "shared receive queue error", "shared receive queue limit reached", "last work request reached",
		"client reregistration", "GID table changed", "work queue fatal error",
	}, int(k), "event")
}

// An AsyncEvent is an event of a device. Events of queue pairs have QPNum, those of completion
// queues CQ, those of ports Port.
type AsyncEvent struct {
	Kind  EventKind
	Port  int
	QPNum uint32
	CQ    CQ
}

// AsyncFD returns a non-blocking descriptor that is readable when there is an event. The context
// owns it.
func (c Context) AsyncFD() int { return int(C.vb_async_fd(c.c())) }

// AsyncEvent reads the next event and acknowledges it. syscall.EAGAIN: no event. EIO after an
// EventDeviceFatal: the device was removed.
func (c Context) AsyncEvent() (AsyncEvent, error) {
	var e C.struct_vb_event
	switch rc := C.vb_async_event(c.c(), &e); syscall.Errno(rc) {
	case 0:
		return AsyncEvent{Kind: EventKind(e.kind), Port: int(e.port), QPNum: uint32(e.qp_num), CQ: CQ(e.cq)}, nil
	case syscall.EAGAIN:
		return AsyncEvent{}, syscall.EAGAIN
	default:
		return AsyncEvent{}, check(rc, "read an event of %s", c.Name())
	}
}
