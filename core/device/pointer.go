// SPDX-License-Identifier: MIT

package device

import (
	"fmt"

	"mori/native/gpu"
)

// A Kind is where memory is.
type Kind int

// The kinds of memory.
const (
	Unknown Kind = iota // no driver knows it: ordinary host memory, or no memory at all
	Host                // host memory that devices reach
	OnDevice
	Managed // moved between both by the driver
)

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", int(k))
	}
	return kindNames[k]
}

var kindNames = [...]string{"host", "pinned host", "device", "managed"}

var kinds = map[gpu.MemoryKind]Kind{gpu.HostMemory: Host, gpu.DeviceMemory: OnDevice, gpu.ManagedMemory: Managed}

// A Pointer is what the drivers know about an address.
type Pointer struct {
	Kind       Kind
	Device     *Device // nil if of none
	Base       uint64  // of the allocation around it; 0 if not known, as of pinned memory of some drivers
	Bytes      uint64  // of that allocation
	DeviceAddr uint64  // where devices see it, 0 if they do not
	HostAddr   uint64  // where the host sees it, 0 if it does not
	IPC        bool    // ExportIPC takes it
	FD         bool    // it is of Virtual memory that goes to others as a descriptor
	RDMA       bool    // NICs can be let at it
}

// Lookup describes an address. Without an error, every driver here was asked.
func Lookup(addr uint64) (Pointer, error) { return here.lookup(addr) }

func (s *system) lookup(addr uint64) (Pointer, error) {
	if _, err := s.all(); err != nil {
		return Pointer{}, ignoreAbsent(err)
	}
	for _, v := range []Vendor{CUDA, HIP} {
		s.mu.Lock()
		driver, devices := s.drivers[v], s.devices[v]
		s.mu.Unlock()
		if driver == nil {
			continue
		}
		p, err := driver.Pointer(addr)
		if err != nil {
			return Pointer{}, fmt.Errorf("query address %#x: %w", addr, err)
		}
		if p.Kind == gpu.Unregistered {
			continue
		}
		out := Pointer{Kind: kinds[p.Kind], Base: p.Base, Bytes: p.Bytes, DeviceAddr: p.DeviceAddr, HostAddr: p.HostAddr, IPC: p.IPC, FD: p.FD, RDMA: p.RDMA}
		if p.Device >= 0 && p.Device < len(devices) {
			out.Device = devices[p.Device]
		}
		return out, nil
	}
	return Pointer{}, nil
}
