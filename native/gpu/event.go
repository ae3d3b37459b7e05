// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

// An Event completes when a stream has finished the work before it. Handle is the vendor's.
type Event struct {
	Device Device
	Handle uint64
}

// NewEvent makes an event. An event without timing is cheaper.
func (d Device) NewEvent(timing bool) (Event, error) {
	var e C.uint64_t
	t := C.int(0)
	if timing {
		t = 1
	}
	rc := C.gpu_event_create(d.Driver.api, d.id(), t, &e)
	h, err := d.made(e, rc)
	return Event{d, h}, err
}

// Destroy destroys the event, which may be pending.
func (e Event) Destroy() error {
	return e.Device.check(C.gpu_event_destroy(e.Device.Driver.api, e.Device.id(), C.uint64_t(e.Handle)))
}

// Record makes the event complete when the stream has finished its work so far.
func (e Event) Record(s Stream) error {
	return e.Device.check(C.gpu_event_record(e.Device.Driver.api, e.Device.id(), C.uint64_t(e.Handle), C.uint64_t(s.Handle)))
}

// Done reports whether the event has completed. An event that was never recorded has.
func (e Event) Done() (bool, error) {
	return e.Device.polled(C.gpu_event_query(e.Device.Driver.api, e.Device.id(), C.uint64_t(e.Handle)))
}

// Since returns the time from an earlier event to this one, in milliseconds. Both must have timing
// and must have completed.
func (e Event) Since(earlier Event) (float32, error) {
	var ms C.float
	err := e.Device.check(C.gpu_event_elapsed(e.Device.Driver.api, e.Device.id(), C.uint64_t(earlier.Handle), C.uint64_t(e.Handle), &ms))
	return float32(ms), err
}
