// SPDX-License-Identifier: MIT

package gpu

// #include "gpu.h"
import "C"

import "unsafe"

// Alloc allocates n bytes on the device.
func (d Device) Alloc(n uint64) (uint64, error) {
	var addr C.uint64_t
	rc := C.gpu_alloc(d.Driver.api, d.id(), C.uint64_t(n), &addr)
	return d.made(addr, rc)
}

// Free frees memory of Alloc. It may wait for the device.
func (d Device) Free(addr uint64) error {
	return d.check(C.gpu_free(d.Driver.api, d.id(), C.uint64_t(addr)))
}

// AllocHost allocates n bytes of pinned host memory, which all devices can access. device is its
// address for the device.
func (d Device) AllocHost(n uint64) (host, device uint64, err error) {
	var h, a C.uint64_t
	err = d.check(C.gpu_host_alloc(d.Driver.api, d.id(), C.uint64_t(n), &h, &a))
	return uint64(h), uint64(a), err
}

// FreeHost frees memory of AllocHost.
func (d Device) FreeHost(host uint64) error {
	return d.check(C.gpu_host_free(d.Driver.api, d.id(), C.uint64_t(host)))
}

// RegisterHost pins n bytes of host memory, so that all devices can access it, and returns its
// address for the device.
func (d Device) RegisterHost(host, n uint64) (device uint64, err error) {
	var a C.uint64_t
	rc := C.gpu_host_register(d.Driver.api, d.id(), C.uint64_t(host), C.uint64_t(n), &a)
	return d.made(a, rc)
}

// UnregisterHost undoes RegisterHost.
func (d Device) UnregisterHost(host uint64) error {
	return d.check(C.gpu_host_unregister(d.Driver.api, d.id(), C.uint64_t(host)))
}

// A MemoryKind is the kind of memory.
type MemoryKind int

// The kinds of memory. The driver does not know Unregistered memory.
const (
	Unregistered  MemoryKind = C.GPU_UNREGISTERED
	HostMemory    MemoryKind = C.GPU_HOST
	DeviceMemory  MemoryKind = C.GPU_DEVICE
	ManagedMemory MemoryKind = C.GPU_MANAGED
)

// A Pointer is a driver's information on an address.
type Pointer struct {
	Kind        MemoryKind
	Device      int    // -1 if none
	Base, Bytes uint64 // of its allocation; 0 if unknown
	DeviceAddr  uint64 // for devices, 0 if they cannot access it
	HostAddr    uint64 // for the host, 0 if it cannot access it
	IPC         bool   // IPCHandle supports it
	FD          bool   // VMM memory that can be exported as a descriptor
	RDMA        bool   // NICs can access it
}

// Pointer queries an address. It creates no context. An unknown address is not an error.
func (d *Driver) Pointer(addr uint64) (Pointer, error) {
	var c C.struct_gpu_pointer
	if err := d.check(-1, C.gpu_pointer(d.api, C.uint64_t(addr), &c)); err != nil {
		return Pointer{}, err
	}
	return Pointer{
		Kind: MemoryKind(c.kind), Device: int(c.device), Base: uint64(c.base), Bytes: uint64(c.bytes),
		DeviceAddr: uint64(c.device_addr), HostAddr: uint64(c.host_addr),
		IPC: c.can&C.GPU_CAN_IPC != 0, FD: c.can&C.GPU_CAN_FD != 0, RDMA: c.can&C.GPU_CAN_RDMA != 0,
	}, nil
}

// HandleSize is the size of an IPC handle.
const HandleSize = C.GPU_HANDLE

// IPCHandle returns a handle with which other processes of this host can map the whole allocation
// around addr.
func (d Device) IPCHandle(addr uint64) (h [HandleSize]byte, err error) {
	err = d.check(C.gpu_ipc_get(d.Driver.api, d.id(), C.uint64_t(addr), unsafe.Pointer(&h)))
	return h, err
}

// OpenIPC maps another process's allocation. Drivers need not support opening a handle twice, or a
// handle of this process.
func (d Device) OpenIPC(h *[HandleSize]byte) (uint64, error) {
	var addr C.uint64_t
	rc := C.gpu_ipc_open(d.Driver.api, d.id(), unsafe.Pointer(h), &addr)
	return d.made(addr, rc)
}

// CloseIPC undoes OpenIPC.
func (d Device) CloseIPC(addr uint64) error {
	return d.check(C.gpu_ipc_close(d.Driver.api, d.id(), C.uint64_t(addr)))
}

// DMABuf exports n bytes at addr as a dma-buf for other devices of the host. They begin at offset
// in the dma-buf. The caller closes the descriptor.
func (d Device) DMABuf(addr, n uint64) (fd int, offset uint64, err error) {
	c, at := C.int(-1), C.uint64_t(0)
	if err = d.check(C.gpu_dmabuf(d.Driver.api, d.id(), C.uint64_t(addr), C.uint64_t(n), &c, &at)); err != nil {
		return -1, 0, err
	}
	return int(c), uint64(at), nil
}
