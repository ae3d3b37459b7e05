// SPDX-License-Identifier: MIT

//go:build ofi

package libfabric

// #include "shim.h"
import "C"

import "unsafe"

// made converts the result of a call that creates an object.
func made(fid C.uint64_t, rc C.int) (FID, error) {
	if err := errno(rc); err != nil {
		return 0, err
	}
	return FID(fid), nil
}

// OpenFabric is fi_fabric.
func OpenFabric(info FID) (FID, error) {
	var f C.uint64_t
	rc := C.lf_fabric(C.uint64_t(info), &f)
	return made(f, rc)
}

// OpenDomain is fi_domain.
func OpenDomain(fabric, info FID) (FID, error) {
	var f C.uint64_t
	rc := C.lf_domain(C.uint64_t(fabric), C.uint64_t(info), &f)
	return made(f, rc)
}

// OpenEQ is fi_eq_open.
func OpenEQ(fabric FID) (FID, error) {
	var f C.uint64_t
	rc := C.lf_eq_open(C.uint64_t(fabric), &f)
	return made(f, rc)
}

// OpenCQ is fi_cq_open.
func OpenCQ(domain FID, size int) (FID, error) {
	var f C.uint64_t
	rc := C.lf_cq_open(C.uint64_t(domain), C.size_t(size), &f)
	return made(f, rc)
}

// OpenAV is fi_av_open.
func OpenAV(domain FID, count int) (FID, error) {
	var f C.uint64_t
	rc := C.lf_av_open(C.uint64_t(domain), C.size_t(count), &f)
	return made(f, rc)
}

// OpenEndpoint is fi_endpoint.
func OpenEndpoint(domain, info FID) (FID, error) {
	var f C.uint64_t
	rc := C.lf_endpoint(C.uint64_t(domain), C.uint64_t(info), &f)
	return made(f, rc)
}

// OpenPassive is fi_passive_ep.
func OpenPassive(fabric, info FID) (FID, error) {
	var f C.uint64_t
	rc := C.lf_passive(C.uint64_t(fabric), C.uint64_t(info), &f)
	return made(f, rc)
}

// Register is fi_mr_reg.
func Register(domain FID, addr, n, access, key uint64) (FID, error) {
	var f C.uint64_t
	rc := C.lf_mr_reg(C.uint64_t(domain), C.uint64_t(addr), C.uint64_t(n), C.uint64_t(access), C.uint64_t(key), &f)
	return made(f, rc)
}

// Close is fi_close.
func (f FID) Close() error { return errno(C.lf_close(C.uint64_t(f))) }

// Bind is fi_ep_bind, fi_pep_bind and similar calls.
func (f FID) Bind(to FID, flags uint64) error {
	return errno(C.lf_bind(C.uint64_t(f), C.uint64_t(to), C.uint64_t(flags)))
}

// Enable is fi_enable.
func (f FID) Enable() error { return errno(C.lf_enable(C.uint64_t(f))) }

// Key is fi_mr_key.
func (f FID) Key() uint64 { return uint64(C.lf_mr_key(C.uint64_t(f))) }

// Desc is fi_mr_desc.
func (f FID) Desc() uint64 { return uint64(C.lf_mr_desc(C.uint64_t(f))) }

// Name is fi_getname.
func (f FID) Name() ([]byte, error) {
	var buf [C.LF_ADDR]byte
	n := C.size_t(len(buf))
	if err := errno(C.lf_getname(C.uint64_t(f), unsafe.Pointer(&buf), &n)); err != nil {
		return nil, err
	}
	return buf[:min(int(n), len(buf))], nil
}

// MaxPrivate returns the most bytes of private data for connecting.
func (f FID) MaxPrivate() (int, error) {
	var n C.size_t
	err := errno(C.lf_cm_data_size(C.uint64_t(f), &n))
	return min(int(n), C.LF_DATA), err
}

// Listen is fi_listen.
func (f FID) Listen() error { return errno(C.lf_listen(C.uint64_t(f))) }

// Reject is fi_reject.
func (f FID) Reject(handle FID, private []byte) error {
	return errno(C.lf_reject(C.uint64_t(f), C.uint64_t(handle), pointer(private), C.size_t(len(private))))
}

// Connect is fi_connect. addr is a complete address in the endpoint's format.
func (f FID) Connect(addr, private []byte) error {
	return errno(C.lf_connect(C.uint64_t(f), pointer(addr), pointer(private), C.size_t(len(private))))
}

// Accept is fi_accept.
func (f FID) Accept(private []byte) error {
	return errno(C.lf_accept(C.uint64_t(f), pointer(private), C.size_t(len(private))))
}

// Shutdown is fi_shutdown.
func (f FID) Shutdown() error { return errno(C.lf_shutdown(C.uint64_t(f))) }

// Cancel is fi_cancel of the op whose context is at ctx. It does nothing if the op has ended.
func (f FID) Cancel(ctx uint64) { C.lf_cancel(C.uint64_t(f), C.uint64_t(ctx)) }

// Insert is fi_av_insert of one address.
func (f FID) Insert(addr []byte) (peer uint64, err error) {
	var p C.uint64_t
	err = errno(C.lf_av_insert(C.uint64_t(f), pointer(addr), &p))
	return uint64(p), err
}

// Remove is fi_av_remove of one address.
func (f FID) Remove(peer uint64) error {
	return errno(C.lf_av_remove(C.uint64_t(f), C.uint64_t(peer)))
}

// QueryAtomic is fi_query_atomic of a domain. It returns the number of elements and the bytes of
// each.
func (f FID) QueryAtomic(dataType, op uint32, flags uint64) (count, size uint64, err error) {
	var n, s C.uint64_t
	err = errno(C.lf_query_atomic(C.uint64_t(f), C.uint32_t(dataType), C.uint32_t(op), C.uint64_t(flags), &n, &s))
	return uint64(n), uint64(s), err
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// An EventReader reads the events of a queue, one at a time.
type EventReader struct {
	eq  FID
	buf C.struct_lf_event
}

// NewEventReader makes a reader of the queue eq.
func NewEventReader(eq FID) *EventReader { return &EventReader{eq: eq} }

// Read is fi_eq_read and fi_eq_readerr.
func (r *EventReader) Read() (ev Event, ok bool) {
	c := &r.buf
	if C.lf_eq_read(C.uint64_t(r.eq), c) == 0 {
		return ev, false
	}
	return Event{FID: FID(c.fid), Info: FID(c.info), Kind: uint32(c.kind), Err: int32(c.err),
		Data: C.GoBytes(unsafe.Pointer(&c.data[0]), C.int(c.len))}, true
}

// Post posts ops in order. It returns their number, and why the next one was not accepted.
func (f FID) Post(ops []Op) (n int, err error) {
	took := C.lf_post(C.uint64_t(f), (*C.struct_lf_op)(unsafe.Pointer(unsafe.SliceData(ops))), C.int(len(ops)))
	return int(took.n), errno(-took.err)
}

// Poll makes queues progress, beginning with number turn, and reads completions into out. next is
// the turn for the next call.
func Poll(queues []Queue, out []Completion, turn int) (n, next int) {
	got := C.lf_poll((*C.struct_lf_queue)(unsafe.Pointer(unsafe.SliceData(queues))), C.int(len(queues)),
		(*C.struct_lf_completion)(unsafe.Pointer(unsafe.SliceData(out))), C.int(len(out)), C.int(turn))
	return int(got.n), int(got.next)
}

// Idle sleeps for this many microseconds, or until fd is readable.
func Idle(fd, microseconds int) { C.lf_idle(C.int(fd), C.int(microseconds)) }

// Memory allocates zeroed C memory for n elements of size bytes, and returns 0 if that fails. Free
// frees it.
func Memory(n, size int) uint64 { return uint64(C.lf_memory(C.size_t(n), C.size_t(size))) }

// Free frees memory of Memory.
func Free(p uint64) { C.lf_free(C.uint64_t(p)) }
