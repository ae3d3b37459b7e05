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

// Free frees what Alloc gave. It may wait for the device.
func (d Device) Free(addr uint64) error {
	return d.check(C.gpu_free(d.Driver.api, d.id(), C.uint64_t(addr)))
}

// AllocHost allocates n bytes of pinned host memory, which all devices see: on the device under the
// second address.
func (d Device) AllocHost(n uint64) (host, device uint64, err error) {
	var h, a C.uint64_t
	err = d.check(C.gpu_host_alloc(d.Driver.api, d.id(), C.uint64_t(n), &h, &a))
	return uint64(h), uint64(a), err
}

// FreeHost frees what AllocHost gave.
func (d Device) FreeHost(host uint64) error {
	return d.check(C.gpu_host_free(d.Driver.api, d.id(), C.uint64_t(host)))
}

// RegisterHost pins n bytes of host memory, which all devices see then: on the device under the
// address given back.
func (d Device) RegisterHost(host, n uint64) (device uint64, err error) {
	var a C.uint64_t
	rc := C.gpu_host_register(d.Driver.api, d.id(), C.uint64_t(host), C.uint64_t(n), &a)
	return d.made(a, rc)
}

// UnregisterHost undoes RegisterHost.
func (d Device) UnregisterHost(host uint64) error {
	return d.check(C.gpu_host_unregister(d.Driver.api, d.id(), C.uint64_t(host)))
}

// A MemoryKind is where memory is.
type MemoryKind int

// The kinds of memory. Unregistered is memory of which the driver knows nothing.
const (
	Unregistered  MemoryKind = C.GPU_UNREGISTERED
	HostMemory    MemoryKind = C.GPU_HOST
	DeviceMemory  MemoryKind = C.GPU_DEVICE
	ManagedMemory MemoryKind = C.GPU_MANAGED
)

// A Pointer is what a driver knows about an address.
type Pointer struct {
	Kind        MemoryKind
	Device      int    // -1 if none
	Base, Bytes uint64 // of the allocation around it, 0 if not known
	DeviceAddr  uint64 // as devices see it, 0 if they do not
	HostAddr    uint64 // as the host sees it, 0 if it does not
	IPC         bool   // IPCHandle takes it
	FD          bool   // it is of VMM and goes to others as a descriptor
	RDMA        bool   // NICs can reach it
}

// Pointer asks about an address. It makes no context, and unknown addresses are no error.
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

// IPCHandle names the allocation around addr, whole, to other processes of this host.
func (d Device) IPCHandle(addr uint64) (h [HandleSize]byte, err error) {
	err = d.check(C.gpu_ipc_get(d.Driver.api, d.id(), C.uint64_t(addr), unsafe.Pointer(&h)))
	return h, err
}

// OpenIPC maps another process's allocation. A driver need not do so twice, nor for a handle of
// this process.
func (d Device) OpenIPC(h *[HandleSize]byte) (uint64, error) {
	var addr C.uint64_t
	rc := C.gpu_ipc_open(d.Driver.api, d.id(), unsafe.Pointer(h), &addr)
	return d.made(addr, rc)
}

// CloseIPC undoes OpenIPC.
func (d Device) CloseIPC(addr uint64) error {
	return d.check(C.gpu_ipc_close(d.Driver.api, d.id(), C.uint64_t(addr)))
}

// DMABuf makes a descriptor of a dma-buf that has n bytes at addr, for other devices of the host:
// the caller closes it. They begin at offset in it.
func (d Device) DMABuf(addr, n uint64) (fd int, offset uint64, err error) {
	c, at := C.int(-1), C.uint64_t(0)
	if err = d.check(C.gpu_dmabuf(d.Driver.api, d.id(), C.uint64_t(addr), C.uint64_t(n), &c, &at)); err != nil {
		return -1, 0, err
	}
	return int(c), uint64(at), nil
}
