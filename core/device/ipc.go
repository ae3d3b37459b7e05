// SPDX-License-Identifier: MIT

package device

import (
	"fmt"
	"maps"
	"sync"

	"mori/native/gpu"
)

// An IPCHandle names memory of a device to other processes of this host: an allocation, and an
// offset in it.
type IPCHandle struct {
	Handle [gpu.HandleSize]byte // of the whole allocation
	Offset uint64
	Bytes  uint64 // of the allocation
}

// ipcCache holds a device's exported and opened allocations. Drivers export whole allocations only.
// They cannot open one twice, or one of their own process, so sub-regions of an allocation share
// its mapping.
type ipcCache struct {
	mu       sync.Mutex
	opened   map[[gpu.HandleSize]byte]*mapping
	exported map[[gpu.HandleSize]byte]uint64 // the base
}

type mapping struct {
	base uint64
	refs int
}

// ExportIPC returns a handle of the memory at addr. The allocation must stay until others have
// closed the memory that they opened.
func (d *Device) ExportIPC(addr uint64) (IPCHandle, error) {
	p, err := d.sys.lookup(addr)
	if err == nil && (p.Kind != OnDevice || p.Device != d) {
		err = fmt.Errorf("it is %v memory: %w", p.Kind, ErrInvalid)
		if p.Device != nil {
			err = fmt.Errorf("it is %v memory of %s: %w", p.Kind, p.Device, ErrInvalid)
		}
	}
	if err == nil && !p.IPC {
		err = fmt.Errorf("it cannot be exported (virtual or pool memory): %w", ErrInvalid)
	}
	if err != nil {
		return IPCHandle{}, fmt.Errorf("export address %#x of %s: %w", addr, d, err)
	}
	h, err := d.gpu.IPCHandle(p.Base)
	if err != nil {
		return IPCHandle{}, fmt.Errorf("export address %#x of %s: %w", addr, d, err)
	}
	d.ipc.export(h, p.Base)
	return IPCHandle{Handle: h, Offset: addr - p.Base, Bytes: p.Bytes}, nil
}

// IPCMemory is memory of another process, mapped here.
type IPCMemory struct {
	handle
	addr, bytes uint64
}

// Addr returns the address of the handle's memory.
func (m *IPCMemory) Addr() uint64 { return m.addr }

// Bytes returns the size from Addr to the end of the allocation.
func (m *IPCMemory) Bytes() uint64 { return m.bytes }

// OpenIPC maps the memory of h for d, wherever it is, unless it is mapped already. For a handle of
// this process it returns the memory itself.
func (d *Device) OpenIPC(h IPCHandle) (*IPCMemory, error) {
	if h.Offset >= h.Bytes {
		return nil, fmt.Errorf("open memory of another process: offset %d of %d bytes: %w", h.Offset, h.Bytes, ErrInvalid)
	}
	m := &IPCMemory{bytes: h.Bytes - h.Offset}
	what := fmt.Sprintf("%d bytes of another process's memory", m.bytes)
	if base, ok := d.sys.own(h.Handle); ok {
		m.addr = base + h.Offset
		m.init(d, what, func() error { return nil })
		return m, nil
	}
	base, err := d.ipc.open(d.gpu, h.Handle)
	if err != nil {
		return nil, fmt.Errorf("open %d bytes of another process's memory for %s: %w", h.Bytes, d, err)
	}
	m.addr = base + h.Offset
	m.init(d, what, func() error { return d.ipc.close(d.gpu, h.Handle) })
	return m, nil
}

// own finds the allocation of this process that a handle names. It queries the driver, because the
// allocation may have been freed.
func (s *system) own(h [gpu.HandleSize]byte) (uint64, bool) {
	all, err := s.all()
	if err != nil {
		return 0, false
	}
	for _, d := range all {
		base, ok := d.ipc.exportedBase(h)
		if !ok {
			continue
		}
		if now, err := d.gpu.IPCHandle(base); err == nil && now == h {
			return base, true
		}
		d.ipc.forget(h)
	}
	return 0, false
}

// export notes the base of the allocation that a handle names. If another allocation was there
// before, its handle is forgotten.
func (c *ipcCache) export(h [gpu.HandleSize]byte, base uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.exported == nil {
		c.exported = make(map[[gpu.HandleSize]byte]uint64)
	}
	maps.DeleteFunc(c.exported, func(_ [gpu.HandleSize]byte, other uint64) bool { return other == base })
	c.exported[h] = base
}

// exportedBase returns the base of the allocation that was exported as h.
func (c *ipcCache) exportedBase(h [gpu.HandleSize]byte) (base uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	base, ok = c.exported[h]
	return base, ok
}

// forget removes an exported handle.
func (c *ipcCache) forget(h [gpu.HandleSize]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exported, h)
}

// open maps the allocation of a handle, unless it is mapped.
func (c *ipcCache) open(d gpu.Device, h [gpu.HandleSize]byte) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.opened[h]; m != nil {
		m.refs++
		return m.base, nil
	}
	base, err := d.OpenIPC(&h)
	if err != nil {
		return 0, err
	}
	if c.opened == nil {
		c.opened = make(map[[gpu.HandleSize]byte]*mapping)
	}
	c.opened[h] = &mapping{base, 1}
	return base, nil
}

// close undoes one open.
func (c *ipcCache) close(d gpu.Device, h [gpu.HandleSize]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.opened[h]
	if m.refs--; m.refs > 0 {
		return nil
	}
	delete(c.opened, h)
	return d.CloseIPC(m.base)
}
