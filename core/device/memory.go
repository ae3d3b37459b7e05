// SPDX-License-Identifier: MIT

package device

import (
	"fmt"
	"os"
)

// Memory is an allocation on a device.
type Memory struct {
	handle
	addr, bytes uint64
}

// Addr returns its first address.
func (m *Memory) Addr() uint64 { return m.addr }

// Bytes returns its size.
func (m *Memory) Bytes() uint64 { return m.bytes }

// Alloc allocates n bytes, aligned for every use.
func (d *Device) Alloc(n uint64) (*Memory, error) {
	addr, err := d.gpu.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes on %s: %w", n, d, err)
	}
	m := &Memory{addr: addr, bytes: n}
	m.init(d, fmt.Sprintf("%d bytes of memory", n), func() error { return d.gpu.Free(addr) })
	return m, nil
}

// HostMemory is host memory that devices can access: pinned, and mapped for all of them.
type HostMemory struct {
	handle
	addr, device, bytes uint64
}

// Addr returns its address for the host.
func (m *HostMemory) Addr() uint64 { return m.addr }

// DeviceAddr returns its address for devices.
func (m *HostMemory) DeviceAddr() uint64 { return m.device }

// Bytes returns its size.
func (m *HostMemory) Bytes() uint64 { return m.bytes }

// pageBytes is the system's page, and a NIC's.
var pageBytes = uint64(os.Getpagesize())

// AllocHost allocates n bytes of host memory that all devices can access. From one page on it is
// page-aligned, as NICs need for their queues.
func (d *Device) AllocHost(n uint64) (*HostMemory, error) {
	host, dev, err := d.gpu.AllocHost(n)
	skip := uint64(0)
	if err == nil && n >= pageBytes && host%pageBytes != 0 { // drivers cut small allocations out of larger ones
		if err = d.gpu.FreeHost(host); err == nil {
			host, dev, err = d.gpu.AllocHost(n + pageBytes)
			skip = -host % pageBytes
		}
	}
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of pinned memory for %s: %w", n, d, err)
	}
	m := &HostMemory{addr: host + skip, device: dev + skip, bytes: n}
	m.init(d, fmt.Sprintf("%d bytes of pinned memory", n), func() error { return d.gpu.FreeHost(host) })
	return m, nil
}

// RegisterHost pins n bytes of the caller's host memory at addr until Close. If the range overlaps
// a registered one, the error wraps ErrDuplicate.
func (d *Device) RegisterHost(addr, n uint64) (*HostMemory, error) {
	dev, err := d.gpu.RegisterHost(addr, n)
	if err != nil {
		return nil, fmt.Errorf("register %d bytes of host memory at %#x with %s: %w", n, addr, d, err)
	}
	m := &HostMemory{addr: addr, device: dev, bytes: n}
	m.init(d, fmt.Sprintf("%d bytes of registered memory", n), func() error { return d.gpu.UnregisterHost(addr) })
	return m, nil
}
