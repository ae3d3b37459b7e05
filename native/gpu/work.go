// SPDX-License-Identifier: MIT

package gpu

// #include <stdlib.h>
// #include "gpu.h"
import "C"

import (
	"bytes"
	"errors"
	"runtime"
	"unsafe"
)

// Copy copies n bytes between any two addresses that the device's driver knows, and host memory,
// after what stream has to do.
func (d Device) Copy(dst, src, n, stream uint64) error {
	return d.check(C.gpu_copy(d.Driver.api, d.id(), C.uint64_t(dst), C.uint64_t(src), C.uint64_t(n), C.uint64_t(stream)))
}

// CopyPeer copies between two devices, whether they reach each other or not.
func (d Device) CopyPeer(dst uint64, dstDevice int, src uint64, srcDevice int, n, stream uint64) error {
	return d.check(C.gpu_copy_peer(d.Driver.api, d.id(), C.uint64_t(dst), C.int(dstDevice), C.uint64_t(src), C.int(srcDevice), C.uint64_t(n), C.uint64_t(stream)))
}

// Set fills n bytes.
func (d Device) Set(dst uint64, value byte, n, stream uint64) error {
	return d.check(C.gpu_set(d.Driver.api, d.id(), C.uint64_t(dst), C.uint8_t(value), C.uint64_t(n), C.uint64_t(stream)))
}

// Priorities are those of streams: lower numbers go first.
func (d Device) Priorities() (least, greatest int, err error) {
	var l, g C.int
	err = d.check(C.gpu_priorities(d.Driver.api, d.id(), &l, &g))
	return int(l), int(g), err
}

// NewStream makes a stream that does not wait for the default stream.
func (d Device) NewStream(priority int) (uint64, error) {
	var s C.uint64_t
	rc := C.gpu_stream_create(d.Driver.api, d.id(), C.int(priority), &s)
	return d.made(s, rc)
}

// DestroyStream destroys a stream, once it has done what it has to.
func (d Device) DestroyStream(s uint64) error {
	return d.check(C.gpu_stream_destroy(d.Driver.api, d.id(), C.uint64_t(s)))
}

// polled is the answer of a query: waiting is not an error, and allocates none.
func (d Device) polled(rc C.struct_gpu_rc) (bool, error) {
	if rc.code == C.GPU_NOT_READY {
		return false, nil
	}
	return rc.code == 0, d.check(rc)
}

// StreamDone reports whether all that was asked of a stream is done.
func (d Device) StreamDone(s uint64) (bool, error) {
	return d.polled(C.gpu_stream_query(d.Driver.api, d.id(), C.uint64_t(s)))
}

// StreamWait lets a stream wait for an event, of any device.
func (d Device) StreamWait(s, event uint64) error {
	return d.check(C.gpu_stream_wait(d.Driver.api, d.id(), C.uint64_t(s), C.uint64_t(event)))
}

// NewEvent makes an event. One without timing is cheaper.
func (d Device) NewEvent(timing bool) (uint64, error) {
	var e C.uint64_t
	t := C.int(0)
	if timing {
		t = 1
	}
	rc := C.gpu_event_create(d.Driver.api, d.id(), t, &e)
	return d.made(e, rc)
}

// DestroyEvent destroys an event, which may still be to come.
func (d Device) DestroyEvent(e uint64) error {
	return d.check(C.gpu_event_destroy(d.Driver.api, d.id(), C.uint64_t(e)))
}

// Record lets the event happen when the stream has done what it has to.
func (d Device) Record(e, stream uint64) error {
	return d.check(C.gpu_event_record(d.Driver.api, d.id(), C.uint64_t(e), C.uint64_t(stream)))
}

// EventDone reports whether an event has happened; one that was never recorded has.
func (d Device) EventDone(e uint64) (bool, error) {
	return d.polled(C.gpu_event_query(d.Driver.api, d.id(), C.uint64_t(e)))
}

// Elapsed is the time between two events with timing that have happened, in milliseconds.
func (d Device) Elapsed(from, to uint64) (float32, error) {
	var ms C.float
	err := d.check(C.gpu_event_elapsed(d.Driver.api, d.id(), C.uint64_t(from), C.uint64_t(to), &ms))
	return float32(ms), err
}

// LoadModule loads PTX or a cubin (CUDA), or a code object (HIP). The log of a compiler that
// refuses is part of the error's text.
func (d Device) LoadModule(image []byte) (uint64, error) {
	terminated := make([]byte, len(image)+1) // PTX is a C string
	copy(terminated, image)
	var log [C.GPU_LOG]byte
	var m C.uint64_t
	rc := C.gpu_module_load(d.Driver.api, d.id(), unsafe.Pointer(&terminated[0]), &m, (*C.char)(unsafe.Pointer(&log[0])), C.size_t(len(log)))
	handle, err := d.made(m, rc)
	var refused *Error
	if errors.As(err, &refused) {
		if text, _, _ := bytes.Cut(log[:], []byte{0}); len(text) > 0 {
			refused.Text += ": " + string(bytes.TrimSpace(text))
		}
	}
	return handle, err
}

// UnloadModule unloads a module that nothing runs of.
func (d Device) UnloadModule(m uint64) error {
	return d.check(C.gpu_module_unload(d.Driver.api, d.id(), C.uint64_t(m)))
}

// Function finds a kernel.
func (d Device) Function(module uint64, name string) (uint64, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var f C.uint64_t
	rc := C.gpu_module_function(d.Driver.api, d.id(), C.uint64_t(module), c, &f)
	return d.made(f, rc)
}

// Global finds a variable.
func (d Device) Global(module uint64, name string) (addr, n uint64, err error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var a, size C.uint64_t
	err = d.check(C.gpu_module_global(d.Driver.api, d.id(), C.uint64_t(module), c, &a, &size))
	return uint64(a), uint64(size), err
}

// Attributes of functions, under one number at both vendors (CU_FUNC_ATTRIBUTE_*,
// HIP_FUNC_ATTRIBUTE_*).
const (
	MaxThreads    = 0
	StaticShared  = 1
	LocalBytes    = 3
	Registers     = 4
	BinaryVersion = 6
)

// FunctionAttribute asks for an attribute of a kernel.
func (d Device) FunctionAttribute(f uint64, attribute int) (int, error) {
	var v C.int
	err := d.check(C.gpu_function_attribute(d.Driver.api, d.id(), C.uint64_t(f), C.int(attribute), &v))
	return int(v), err
}

// SetShared lets launches of f ask for so much shared memory, up to Info.MaxShared.
func (d Device) SetShared(f uint64, n int) error {
	return d.check(C.gpu_function_shared(d.Driver.api, d.id(), C.uint64_t(f), C.int(n)))
}

// A Grid is the shape of a launch.
type Grid struct {
	Blocks, Threads [3]uint32
	Shared          uint32 // bytes of each block, beside what the kernel has itself
}

// The struct of a launch is that of gpu.h.
var _ [0]byte = [unsafe.Sizeof(Grid{}) - C.sizeof_struct_gpu_grid]byte{}

// Launch launches f. The arguments lie in args as the kernel's parameters do; they are copied
// before it returns.
func (d Device) Launch(f uint64, g *Grid, stream uint64, args []byte) error {
	rc := C.gpu_launch(d.Driver.api, d.id(), C.uint64_t(f), (*C.struct_gpu_grid)(unsafe.Pointer(g)), C.uint64_t(stream), unsafe.Pointer(unsafe.SliceData(args)), C.size_t(len(args)))
	runtime.KeepAlive(g)
	return d.check(rc)
}
