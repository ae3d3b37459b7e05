// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

// A Stream executes work of a device in order. Handle is the vendor's; 0 is the default stream.
type Stream struct {
	Device Device
	Handle uint64
}

// Priorities returns the range of stream priorities: lower numbers run first.
func (d Device) Priorities() (least, greatest int, err error) {
	var l, g C.int
	err = d.check(C.gpu_priorities(d.Driver.api, d.id(), &l, &g))
	return int(l), int(g), err
}

// NewStream makes a stream that does not wait for the default stream.
func (d Device) NewStream(priority int) (Stream, error) {
	var s C.uint64_t
	rc := C.gpu_stream_create(d.Driver.api, d.id(), C.int(priority), &s)
	h, err := d.made(s, rc)
	return Stream{d, h}, err
}

// Destroy destroys the stream once it has finished its work.
func (s Stream) Destroy() error {
	return s.Device.check(C.gpu_stream_destroy(s.Device.Driver.api, s.Device.id(), C.uint64_t(s.Handle)))
}

// Copy copies n bytes after the stream's earlier work. src and dst are addresses that the device's
// driver knows, or host memory.
func (s Stream) Copy(dst, src, n uint64) error {
	return s.Device.check(C.gpu_copy(s.Device.Driver.api, s.Device.id(), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n), C.uint64_t(s.Handle)))
}

// CopyPeer copies between two devices, whether or not they can access each other's memory.
func (s Stream) CopyPeer(dst uint64, dstDevice int, src uint64, srcDevice int, n uint64) error {
	return s.Device.check(C.gpu_copy_peer(s.Device.Driver.api, s.Device.id(), C.uint64_t(dst), C.int(dstDevice), C.uint64_t(src), C.int(srcDevice), C.uint64_t(n), C.uint64_t(s.Handle)))
}

// Set sets n bytes to value.
func (s Stream) Set(dst uint64, value byte, n uint64) error {
	return s.Device.check(C.gpu_set(s.Device.Driver.api, s.Device.id(), C.uint64_t(dst), C.uint8_t(value), C.uint64_t(n), C.uint64_t(s.Handle)))
}

// polled converts the result of a query. Pending work is not an error and allocates nothing.
func (d Device) polled(rc C.struct_gpu_rc) (bool, error) {
	if rc.code == C.GPU_NOT_READY {
		return false, nil
	}
	return rc.code == 0, d.check(rc)
}

// Done reports whether the stream has finished all its work.
func (s Stream) Done() (bool, error) {
	return s.Device.polled(C.gpu_stream_query(s.Device.Driver.api, s.Device.id(), C.uint64_t(s.Handle)))
}

// Wait makes the stream wait for an event, of any device.
func (s Stream) Wait(e Event) error {
	return s.Device.check(C.gpu_stream_wait(s.Device.Driver.api, s.Device.id(), C.uint64_t(s.Handle), C.uint64_t(e.Handle)))
}
