// SPDX-License-Identifier: MIT

package local

import (
	"errors"
	"fmt"
	"sync"

	"mori/core/fabric"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/gpu"
	"mori/shmem/internal/heap"
	"mori/shmem/internal/peers"
	"mori/shmem/internal/remote"
)

// Buffers is the set of buffers of this process for the local side of transfers.
type Buffers struct {
	pes     *peers.Group
	net     *remote.Network // pins buffers if NICs carry the bytes; nil: all PEs are mapped
	kernels *gpu.Side       // makes buffers usable by kernels; nil: the heap is in host memory

	mu  sync.Mutex // not that of collective calls, which wait for other PEs
	all map[uint64]buffer
}

// New returns an empty set.
func New(pes *peers.Group, net *remote.Network, kernels *gpu.Side) *Buffers {
	return &Buffers{pes: pes, net: net, kernels: kernels, all: map[uint64]buffer{}}
}

// A buffer was registered by RegisterBuffer or allocated by AllocBuffer.
type buffer struct {
	size uint64
	mr   fabric.MR       // its registration with NICs; nil without NICs, or for GPU memory
	seg  *memory.Segment // allocated by AllocBuffer
	hide func() error    // removes it from the queue for kernels; nil without such a queue
}

// close deregisters the memory from NICs. If a NIC does not release it, the memory is kept.
func (f buffer) close() error {
	if f.hide != nil {
		if err := f.hide(); err != nil {
			return err
		}
	}
	if f.mr != nil {
		if err := f.mr.Close(); err != nil {
			return err
		}
	}
	if f.seg != nil {
		return f.seg.Close()
	}
	return nil
}

// AllocBuffer allocates size bytes of zeroed host memory for the local side of transfers and
// registers it. FreeBuffer or Finalize frees it. Not collective.
func (b *Buffers) AllocBuffer(size uint64) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.pes.Check(); err != nil {
		return 0, fmt.Errorf("allocate a buffer of %d bytes: %w", size, err)
	}
	if size == 0 {
		return 0, fmt.Errorf("allocate a buffer of 0 bytes: %w", peers.ErrInvalid)
	}
	size = arena.RoundUp(size, heap.PageSize)
	seg, err := memory.NewSegment("mori-shmem-buffer", size, size)
	if err != nil {
		return 0, fmt.Errorf("allocate a buffer of %d bytes: %w: %w", size, err, peers.ErrNoMemory)
	}
	f := buffer{size: size, seg: seg}
	if f.mr, err = b.pin(seg.Addr(), size); err != nil {
		return 0, errors.Join(fmt.Errorf("allocate a buffer of %d bytes: %w", size, err), seg.Close())
	}
	b.all[seg.Addr()] = f
	return seg.Addr(), nil
}

// FreeBuffer frees memory of AllocBuffer. No pending operation may use it.
func (b *Buffers) FreeBuffer(addr uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.all[addr]
	if !ok || f.seg == nil {
		return fmt.Errorf("free the buffer at %#x: no buffer starts there: %w", addr, peers.ErrInvalid)
	}
	delete(b.all, addr)
	if err := f.close(); err != nil {
		return fmt.Errorf("free the buffer at %#x: %w", addr, err)
	}
	return nil
}

// Drop deregisters all buffers from NICs, and frees those of AllocBuffer.
func Drop(b *Buffers) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for addr, f := range b.all {
		delete(b.all, addr)
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}

// Registered returns the number of registered buffers.
func Registered(b *Buffers) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.all {
		if f.seg == nil {
			n++
		}
	}
	return n
}

// pin registers a buffer with NICs, if they carry the bytes. b.mu is held.
func (b *Buffers) pin(addr, size uint64) (fabric.MR, error) {
	if !b.net.Pins() || access.OnDevice(addr, size) {
		return nil, nil
	}
	return b.net.Register(fabric.Buffer{Addr: addr, Len: size}, 0)
}

// RegisterBuffer announces size bytes at addr as the local side of transfers. Any memory of this
// process can be the local side without it. With NICs, a registered buffer is pinned once and must
// stay mapped until DeregisterBuffer; other memory is pinned for each transfer. The memory must
// exist and must not overlap registered memory. Not collective.
func (b *Buffers) RegisterBuffer(addr, size uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch err := b.pes.Check(); {
	case err != nil:
		return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	case addr == 0 || size == 0 || addr+size < addr:
		return fmt.Errorf("register %d bytes at %#x: not an address: %w", size, addr, peers.ErrInvalid)
	case !memory.Mapped(addr, size) && !access.OnDevice(addr, size):
		return fmt.Errorf("register %d bytes at %#x: not all of it is memory of this process or of a GPU: %w", size, addr, peers.ErrInvalid)
	}
	for at, f := range b.all {
		if addr < at+f.size && at < addr+size {
			return fmt.Errorf("register %d bytes at %#x: %d bytes at %#x are registered: %w", size, addr, f.size, at, peers.ErrInvalid)
		}
	}
	mr, err := b.pin(addr, size)
	if err != nil {
		return fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	}
	f := buffer{size: size, mr: mr}
	if f.hide, err = b.kernels.Show(addr, size); err != nil {
		return errors.Join(fmt.Errorf("register %d bytes at %#x: %w", size, addr, err), f.close())
	}
	b.all[addr] = f
	return nil
}

// DeregisterBuffer undoes a RegisterBuffer with the same arguments.
func (b *Buffers) DeregisterBuffer(addr, size uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.pes.Check(); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
	}
	f, ok := b.all[addr]
	if !ok || f.size != size || f.seg != nil {
		return fmt.Errorf("deregister %d bytes at %#x: they are not registered: %w", size, addr, peers.ErrInvalid)
	}
	delete(b.all, addr)
	if err := f.close(); err != nil {
		return fmt.Errorf("deregister %d bytes at %#x: %w", size, addr, err)
	}
	return nil
}
