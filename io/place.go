// SPDX-License-Identifier: MIT

package io

import (
	"errors"
	"fmt"

	"mori/core/device"
)

// locate finds the GPU that memory to be registered is on, nil for host memory, and refuses what
// the drivers know better. Host memory is looked up only where they are open already.
func locate(addr, size uint64, ordinal int, loc MemoryLocation, movesGPU bool) (*device.Device, error) {
	if loc == LocCPU && !movesGPU {
		return nil, nil
	}
	if loc == LocGPU {
		if _, err := device.Devices(); err != nil {
			return nil, fmt.Errorf("as memory of GPU %d: %w", ordinal, err)
		}
	}
	p, err := device.Lookup(addr)
	if err != nil {
		return nil, err
	}
	on := p.Device
	switch {
	case p.Kind == device.Managed && loc != LocGPU:
		return nil, nil // the host reaches it as well
	case loc == LocCPU && p.Kind == device.OnDevice:
		return nil, fmt.Errorf("as host memory, but it is memory of %v; register it with location GPU and device %d: %w", on, on.Ordinal, ErrInvalid)
	case p.Kind != device.OnDevice && p.Kind != device.Managed:
		if loc == LocGPU {
			return nil, fmt.Errorf("as memory of GPU %d, but the driver knows it as %v memory; register it with location CPU: %w", ordinal, p.Kind, ErrInvalid)
		}
		return nil, nil
	case ordinal >= 0 && on != nil && on.Ordinal != ordinal:
		return nil, fmt.Errorf("as memory of GPU %d, but it is memory of %v: %w", ordinal, on, ErrInvalid)
	}
	if on == nil {
		return nil, fmt.Errorf("as memory of GPU %d: the driver names no device of this process for it: %w", ordinal, ErrInvalid)
	}
	return on, within(p, addr, size)
}

// within checks that a range does not leave its allocation. Virtual memory may be of several
// mappings side by side, all of one device.
func within(p device.Pointer, addr, size uint64) error {
	for end := addr + size; p.Bytes > 0 && end > p.Base+p.Bytes; {
		next, err := device.Lookup(p.Base + p.Bytes)
		if err != nil {
			return err
		}
		if p.IPC || next.IPC || next.Device != p.Device || next.Bytes == 0 {
			return fmt.Errorf("the end is outside of the allocation of %d bytes at %#x on %v: %w",
				p.Bytes, p.Base, p.Device, ErrInvalid)
		}
		p = next
	}
	return nil
}

// movesGPUMemory reports whether any open transport takes it.
func (t *backendTable) movesGPUMemory() bool {
	for _, tr := range t.openTransports() {
		if tr.hmem {
			return true
		}
	}
	return false
}

// export puts the handle into d by which other processes of this host map its allocation, if there
// is an XGMI backend. Memory that has none, of a pool or of virtual mappings, goes other ways.
func (e *Engine) export(d *MemoryDesc, on *device.Device) {
	if !e.backends.has(BackendXGMI) || d.Size == 0 {
		return
	}
	h, err := on.ExportIPC(d.Data)
	if err != nil {
		level := e.self.Log.Warn
		if errors.Is(err, device.ErrInvalid) {
			level = e.self.Log.Info
		}
		level("no IPC handle", "address", fmt.Sprintf("%#x", d.Data), "device", on.String(), "reason", err)
		return
	}
	d.IPCHandle, d.IPCOffset = h.Handle, h.Offset
}
