// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

import "unsafe"

// A Virtual allocates addresses and memory of a device separately, and maps memory at addresses.
type Virtual struct{ device Device }

// Virtual returns the virtual memory management of d, which must have the ability VMM.
func (d Device) Virtual() Virtual { return Virtual{d} }

// Granularity returns the unit of VMM's sizes and addresses, in bytes.
func (v Virtual) Granularity() (uint64, error) {
	var n C.uint64_t
	rc := C.gpu_granularity(v.device.Driver.api, v.device.id(), &n)
	return v.device.made(n, rc)
}

// Reserve reserves n bytes of addresses without memory. With an align of 0 the driver chooses the
// alignment.
func (v Virtual) Reserve(n, align uint64) (uint64, error) {
	var addr C.uint64_t
	rc := C.gpu_vmm_reserve(v.device.Driver.api, v.device.id(), C.uint64_t(n), C.uint64_t(align), &addr)
	return v.device.made(addr, rc)
}

// Unreserve frees reserved addresses.
func (v Virtual) Unreserve(addr, n uint64) error {
	return v.device.check(C.gpu_vmm_unreserve(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n)))
}

// Create allocates n bytes of memory without an address.
func (v Virtual) Create(n uint64) (uint64, error) {
	var h C.uint64_t
	rc := C.gpu_vmm_create(v.device.Driver.api, v.device.id(), C.uint64_t(n), &h)
	return v.device.made(h, rc)
}

// Release frees memory once it is not mapped any more.
func (v Virtual) Release(handle uint64) error {
	return v.device.check(C.gpu_vmm_release(v.device.Driver.api, v.device.id(), C.uint64_t(handle)))
}

// Map maps memory at reserved addresses.
func (v Virtual) Map(addr, n, handle uint64) error {
	return v.device.check(C.gpu_vmm_map(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n), C.uint64_t(handle)))
}

// Unmap undoes Map.
func (v Virtual) Unmap(addr, n uint64) error {
	return v.device.check(C.gpu_vmm_unmap(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n)))
}

// SetAccess lets devices read and write mapped memory.
func (v Virtual) SetAccess(addr, n uint64, devices []int32) error {
	return v.device.check(C.gpu_vmm_access(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n), (*C.int32_t)(unsafe.SliceData(devices)), C.int(len(devices))))
}

// Export returns a descriptor with which other processes can import the memory. The caller closes
// it.
func (v Virtual) Export(handle uint64) (int, error) {
	fd := C.int(-1)
	err := v.device.check(C.gpu_vmm_export(v.device.Driver.api, v.device.id(), C.uint64_t(handle), &fd))
	return int(fd), err
}

// Import returns a handle for a descriptor, which the caller keeps.
func (v Virtual) Import(fd int) (uint64, error) {
	var h C.uint64_t
	rc := C.gpu_vmm_import(v.device.Driver.api, v.device.id(), C.int(fd), &h)
	return v.device.made(h, rc)
}
