// SPDX-License-Identifier: MIT

package region

import (
	"fmt"

	"mori/core/device"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
)

// locate returns the GPU that memory to be registered is on, nil for host memory. It returns an
// error if the GPU driver contradicts the request.
func (q *Request) locate() (*device.Device, error) {
	loc, ordinal := q.Location, q.Ordinal
	if loc == descriptor.LocCPU && !q.AskDrivers {
		return nil, nil
	}
	if loc == descriptor.LocGPU {
		if _, err := device.Devices(); err != nil {
			return nil, fmt.Errorf("as memory of GPU %d: %w", ordinal, err)
		}
	}
	p, err := device.Lookup(q.Addr)
	if err != nil {
		return nil, err
	}
	on := p.Device
	switch {
	case p.Kind == device.Managed && loc != descriptor.LocGPU:
		return nil, nil // the host can access it as well
	case loc == descriptor.LocCPU && p.Kind == device.OnDevice:
		return nil, fmt.Errorf("as host memory, but it is memory of %v; register it with location GPU and device %d: %w", on, on.Ordinal, errs.ErrInvalid)
	case p.Kind != device.OnDevice && p.Kind != device.Managed:
		if loc == descriptor.LocGPU {
			return nil, fmt.Errorf("as memory of GPU %d, but the driver reports %v memory; register it with location CPU: %w", ordinal, p.Kind, errs.ErrInvalid)
		}
		return nil, nil
	case ordinal >= 0 && on != nil && on.Ordinal != ordinal:
		return nil, fmt.Errorf("as memory of GPU %d, but it is memory of %v: %w", ordinal, on, errs.ErrInvalid)
	}
	if on == nil {
		return nil, fmt.Errorf("as memory of GPU %d: the driver reports no device of this process for it: %w", ordinal, errs.ErrInvalid)
	}
	return on, within(p, q.Addr, q.Size)
}

// within returns an error if a range exceeds its allocation. Virtual memory may consist of adjacent
// mappings, all of one device.
func within(p device.Pointer, addr, size uint64) error {
	for end := addr + size; p.Bytes > 0 && end > p.Base+p.Bytes; {
		next, err := device.Lookup(p.Base + p.Bytes)
		if err != nil {
			return err
		}
		if p.IPC || next.IPC || next.Device != p.Device || next.Bytes == 0 {
			return fmt.Errorf("the end is outside of the allocation of %d bytes at %#x on %v: %w",
				p.Bytes, p.Base, p.Device, errs.ErrInvalid)
		}
		p = next
	}
	return nil
}
