// SPDX-License-Identifier: MIT

package shmem

import (
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
)

// A buffer is what RegisterBuffer was told of.
type buffer struct {
	size uint64
	mr   fabric.MR // as NICs know it; nil if no NIC is used, or the memory is a GPU's
}

// RegisterBuffer says that size bytes of ordinary memory at addr will be the local side of transfers. Any memory of this process may
// be that without; where NICs carry the bytes, they pin a buffer that is registered now, which must stay mapped until DeregisterBuffer, and pin
// others for each transfer. What is registered is checked: it exists, and it overlaps with nothing that is
// registered already. Not collective.
func (w *World) RegisterBuffer(addr, size uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch err := w.broken(); {
	case err != nil:
		return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	case addr == 0 || size == 0 || addr+size < addr:
		return fmt.Errorf("register %d bytes at %#x: no memory: %w", size, addr, ErrInvalid)
	case !memory.Mapped(addr, size) && !onDevice(addr, size):
		return fmt.Errorf("register %d bytes at %#x: not all of it is memory of this process or of a GPU: %w", size, addr, ErrInvalid)
	}
	for at, b := range w.buffers {
		if addr < at+b.size && at < addr+size {
			return fmt.Errorf("register %d bytes at %#x: %d bytes at %#x are registered: %w", size, addr, b.size, at, ErrInvalid)
		}
	}
	b := buffer{size: size}
	if w.wire != nil && w.wire.bounceMR != nil && !onDevice(addr, size) {
		var err error
		if b.mr, err = w.wire.register(fabric.Buffer{Addr: addr, Len: size}, 0); err != nil {
			return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
		}
	}
	w.buffers[addr] = b
	return nil
}

// onDevice reports whether all of it is memory of GPUs.
func onDevice(addr, size uint64) bool {
	first, err := device.Lookup(addr)
	last, err2 := device.Lookup(addr + size - 1)
	return err == nil && err2 == nil && first.Kind == device.OnDevice && last.Kind == device.OnDevice
}

// DeregisterBuffer takes back a RegisterBuffer with the same arguments.
func (w *World) DeregisterBuffer(addr, size uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.broken(); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
	}
	b, ok := w.buffers[addr]
	if !ok || b.size != size {
		return fmt.Errorf("deregister %d bytes at %#x: they are not registered: %w", size, addr, ErrInvalid)
	}
	delete(w.buffers, addr)
	if b.mr != nil {
		if err := b.mr.Close(); err != nil {
			return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
		}
	}
	return nil
}
