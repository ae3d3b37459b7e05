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

// A Module is code on a device. Handle is the vendor's.
type Module struct {
	Device Device
	Handle uint64
}

// A Function is a kernel of a module. Handle is the vendor's.
type Function struct {
	Device Device
	Handle uint64
}

// LoadModule loads PTX or a cubin (CUDA), or a code object (HIP). If compilation fails, the error's
// text contains the compiler's log.
func (d Device) LoadModule(image []byte) (Module, error) {
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
	return Module{d, handle}, err
}

// Unload unloads the module. None of its kernels may be running.
func (m Module) Unload() error {
	return m.Device.check(C.gpu_module_unload(m.Device.Driver.api, m.Device.id(), C.uint64_t(m.Handle)))
}

// Function returns a kernel by name.
func (m Module) Function(name string) (Function, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var f C.uint64_t
	rc := C.gpu_module_function(m.Device.Driver.api, m.Device.id(), C.uint64_t(m.Handle), c, &f)
	h, err := m.Device.made(f, rc)
	return Function{m.Device, h}, err
}

// Global returns a variable's address and size.
func (m Module) Global(name string) (addr, n uint64, err error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var a, size C.uint64_t
	err = m.Device.check(C.gpu_module_global(m.Device.Driver.api, m.Device.id(), C.uint64_t(m.Handle), c, &a, &size))
	return uint64(a), uint64(size), err
}

// Attributes of functions, with the same numbers at both vendors (CU_FUNC_ATTRIBUTE_*,
// HIP_FUNC_ATTRIBUTE_*).
const (
	MaxThreads    = 0
	StaticShared  = 1
	LocalBytes    = 3
	Registers     = 4
	BinaryVersion = 6
)

// Attribute returns an attribute of the kernel.
func (f Function) Attribute(attribute int) (int, error) {
	var v C.int
	err := f.Device.check(C.gpu_function_attribute(f.Device.Driver.api, f.Device.id(), C.uint64_t(f.Handle), C.int(attribute), &v))
	return int(v), err
}

// SetShared lets launches of f use n bytes of dynamic shared memory, up to Info.MaxShared.
func (f Function) SetShared(n int) error {
	return f.Device.check(C.gpu_function_shared(f.Device.Driver.api, f.Device.id(), C.uint64_t(f.Handle), C.int(n)))
}

// A Grid is the shape of a launch.
type Grid struct {
	Blocks, Threads [3]uint32
	Shared          uint32 // dynamic bytes of each block
}

// A Grid has the size of gpu.h's struct for a launch.
var _ [0]byte = [unsafe.Sizeof(Grid{}) - C.sizeof_struct_gpu_grid]byte{}

// Launch launches f. args contains the arguments, laid out as the kernel's parameters. Launch
// copies them.
func (f Function) Launch(g *Grid, s Stream, args []byte) error {
	rc := C.gpu_launch(f.Device.Driver.api, f.Device.id(), C.uint64_t(f.Handle), (*C.struct_gpu_grid)(unsafe.Pointer(g)), C.uint64_t(s.Handle), unsafe.Pointer(unsafe.SliceData(args)), C.size_t(len(args)))
	runtime.KeepAlive(g)
	return f.Device.check(rc)
}
