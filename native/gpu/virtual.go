// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

import "unsafe"

// A Virtual makes addresses and memory of a device apart, and maps one to the other.
type Virtual struct{ device Device }

// Virtual returns the virtual memory management of d, which has the ability VMM.
func (d Device) Virtual() Virtual { return Virtual{d} }

// Granularity is what sizes and addresses of VMM are multiples of.
func (v Virtual) Granularity() (uint64, error) {
	var n C.uint64_t
	rc := C.gpu_granularity(v.device.Driver.api, v.device.id(), &n)
	return v.device.made(n, rc)
}

// Reserve takes n bytes of addresses, with nothing behind them. An align of 0 is the driver's
// choice.
func (v Virtual) Reserve(n, align uint64) (uint64, error) {
	var addr C.uint64_t
	rc := C.gpu_vmm_reserve(v.device.Driver.api, v.device.id(), C.uint64_t(n), C.uint64_t(align), &addr)
	return v.device.made(addr, rc)
}

// Unreserve gives addresses back.
func (v Virtual) Unreserve(addr, n uint64) error {
	return v.device.check(C.gpu_vmm_unreserve(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n)))
}

// Create makes n bytes of memory without an address.
func (v Virtual) Create(n uint64) (uint64, error) {
	var h C.uint64_t
	rc := C.gpu_vmm_create(v.device.Driver.api, v.device.id(), C.uint64_t(n), &h)
	return v.device.made(h, rc)
}

// Release gives memory back once it is mapped nowhere.
func (v Virtual) Release(handle uint64) error {
	return v.device.check(C.gpu_vmm_release(v.device.Driver.api, v.device.id(), C.uint64_t(handle)))
}

// Map puts memory behind reserved addresses.
func (v Virtual) Map(addr, n, handle uint64) error {
	return v.device.check(C.gpu_vmm_map(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n), C.uint64_t(handle)))
}

// Unmap undoes Map.
func (v Virtual) Unmap(addr, n uint64) error {
	return v.device.check(C.gpu_vmm_unmap(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n)))
}

// SetAccess lets devices read and write mapped addresses.
func (v Virtual) SetAccess(addr, n uint64, devices []int32) error {
	return v.device.check(C.gpu_vmm_access(v.device.Driver.api, v.device.id(), C.uint64_t(addr), C.uint64_t(n), (*C.int32_t)(unsafe.SliceData(devices)), C.int(len(devices))))
}

// Export makes a descriptor that names memory to other processes. It is the caller's to close.
func (v Virtual) Export(handle uint64) (int, error) {
	fd := C.int(-1)
	err := v.device.check(C.gpu_vmm_export(v.device.Driver.api, v.device.id(), C.uint64_t(handle), &fd))
	return int(fd), err
}

// Import makes a handle of a descriptor, which stays the caller's.
func (v Virtual) Import(fd int) (uint64, error) {
	var h C.uint64_t
	rc := C.gpu_vmm_import(v.device.Driver.api, v.device.id(), C.int(fd), &h)
	return v.device.made(h, rc)
}
