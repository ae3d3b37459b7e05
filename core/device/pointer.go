// SPDX-License-Identifier: MIT

package device

import (
	"fmt"

	"mori/native/gpu"
)

// A Kind is the kind of memory.
type Kind int

// The kinds of memory.
const (
	Unknown Kind = iota // unknown to all drivers: ordinary host memory, or no memory at all
	Host                // host memory that devices can access
	OnDevice
	Managed // migrated between both by the driver
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
	Device     *Device // nil for host memory
	Base       uint64  // start of its allocation; 0 if unknown, as for pinned memory with some drivers
	Bytes      uint64  // size of that allocation
	DeviceAddr uint64  // its address for devices, 0 if they cannot access it
	HostAddr   uint64  // its address for the host, 0 if it cannot access it
	IPC        bool    // ExportIPC supports it
	FD         bool    // Virtual memory that is exported as a descriptor
	RDMA       bool    // NICs can access it
}

// Lookup describes an address. If it returns no error, every driver was asked.
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
