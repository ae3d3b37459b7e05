// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
)

// A buffer is what RegisterBuffer was told of, or AllocBuffer made.
type buffer struct {
	size uint64
	mr   fabric.MR       // as NICs know it; nil if no NIC is used, or the memory is a GPU's
	seg  *memory.Segment // of AllocBuffer
	hide func() error    // takes it from the queue for kernels; nil if there is none
}

// close takes the memory from NICs. If they do not let go of it, it stays.
func (b buffer) close() error {
	if b.hide != nil {
		if err := b.hide(); err != nil {
			return err
		}
	}
	if b.mr != nil {
		if err := b.mr.Close(); err != nil {
			return err
		}
	}
	if b.seg != nil {
		return b.seg.Close()
	}
	return nil
}

// AllocBuffer gives size bytes of ordinary memory, zero at first, for the local side of transfers: like what RegisterBuffer was told of. FreeBuffer
// frees it, or Finalize. Not collective.
func (w *World) AllocBuffer(size uint64) (uint64, error) {
	w.local.Lock()
	defer w.local.Unlock()
	if err := w.pes.Check(); err != nil {
		return 0, fmt.Errorf("allocate a buffer of %d bytes: %w", size, err)
	}
	if size == 0 {
		return 0, fmt.Errorf("allocate a buffer of no bytes: %w", ErrInvalid)
	}
	size = arena.RoundUp(size, heap.PageSize)
	seg, err := memory.NewSegment("mori-shmem-buffer", size, size)
	if err != nil {
		return 0, fmt.Errorf("allocate a buffer of %d bytes: %w: %w", size, err, ErrNoMemory)
	}
	b := buffer{size: size, seg: seg}
	if b.mr, err = w.showBuffer(seg.Addr(), size); err != nil {
		return 0, errors.Join(fmt.Errorf("allocate a buffer of %d bytes: %w", size, err), seg.Close())
	}
	w.local.buffers[seg.Addr()] = b
	return seg.Addr(), nil
}

// FreeBuffer frees what AllocBuffer gave. Nothing that is under way may name it.
func (w *World) FreeBuffer(addr uint64) error {
	w.local.Lock()
	defer w.local.Unlock()
	b, ok := w.local.buffers[addr]
	if !ok || b.seg == nil {
		return fmt.Errorf("free the buffer at %#x: there is none: %w", addr, ErrInvalid)
	}
	delete(w.local.buffers, addr)
	if err := b.close(); err != nil {
		return fmt.Errorf("free the buffer at %#x: %w", addr, err)
	}
	return nil
}

// dropBuffers takes all buffers from NICs, and frees those that are the World's.
func (w *World) dropBuffers() error {
	w.local.Lock()
	defer w.local.Unlock()
	var errs []error
	for addr, b := range w.local.buffers {
		delete(w.local.buffers, addr)
		errs = append(errs, b.close())
	}
	return errors.Join(errs...)
}

// buffersTold is how many buffers RegisterBuffer was told of.
func (w *World) buffersTold() (n int) {
	w.local.Lock()
	defer w.local.Unlock()
	for _, b := range w.local.buffers {
		if b.seg == nil {
			n++
		}
	}
	return n
}

// showBuffer has NICs pin a buffer, if they carry the bytes. With local held.
func (w *World) showBuffer(addr, size uint64) (fabric.MR, error) {
	if !w.net.Pins() || onDevice(addr, size) {
		return nil, nil
	}
	return w.net.Register(fabric.Buffer{Addr: addr, Len: size}, 0)
}

// RegisterBuffer says that size bytes of ordinary memory at addr will be the local side of transfers. Any memory of this process may
// be that without. Where NICs carry the bytes, they pin a registered buffer once, and it must stay mapped until DeregisterBuffer; other memory
// they pin for each transfer. What is registered is checked: it exists, and it overlaps with nothing that is registered already. Not
// collective.
func (w *World) RegisterBuffer(addr, size uint64) error {
	w.local.Lock()
	defer w.local.Unlock()
	switch err := w.pes.Check(); {
	case err != nil:
		return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	case addr == 0 || size == 0 || addr+size < addr:
		return fmt.Errorf("register %d bytes at %#x: no memory: %w", size, addr, ErrInvalid)
	case !memory.Mapped(addr, size) && !onDevice(addr, size):
		return fmt.Errorf("register %d bytes at %#x: not all of it is memory of this process or of a GPU: %w", size, addr, ErrInvalid)
	}
	for at, b := range w.local.buffers {
		if addr < at+b.size && at < addr+size {
			return fmt.Errorf("register %d bytes at %#x: %d bytes at %#x are registered: %w", size, addr, b.size, at, ErrInvalid)
		}
	}
	mr, err := w.showBuffer(addr, size)
	if err != nil {
		return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	}
	b := buffer{size: size, mr: mr}
	if b.hide, err = w.showKernels(addr, size); err != nil {
		return errors.Join(fmt.Errorf("register %d bytes at %#x: %w", size, addr, err), b.close())
	}
	w.local.buffers[addr] = b
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
	w.local.Lock()
	defer w.local.Unlock()
	if err := w.pes.Check(); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
	}
	b, ok := w.local.buffers[addr]
	if !ok || b.size != size || b.seg != nil {
		return fmt.Errorf("deregister %d bytes at %#x: they are not registered: %w", size, addr, ErrInvalid)
	}
	delete(w.local.buffers, addr)
	if err := b.close(); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
	}
	return nil
}
