// SPDX-License-Identifier: MIT

package io

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
)

// A region is memory of this engine's process that was registered. It counts the transfers that use
// it locally, so that deregistering can wait for them; accesses by peers are the transports'
// business.
type region struct {
	desc   MemoryDesc
	device *device.Device // nil: host memory

	mu     sync.Mutex
	closed bool
	users  int
	idle   chan struct{}        // made by leaveAll, closed when users is 0
	mrs    map[string]fabric.MR // by transport
}

// enter notes a local user, unless the region is closed.
func (r *region) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.users++
	return true
}

func (r *region) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	if r.users == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

func (r *region) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closed
}

// gone is the error of a transfer that needs r, which was deregistered.
func (r *region) gone(t *transfer) error {
	if t.session.local != r {
		return nil
	}
	return fmt.Errorf("local region %d was deregistered: %w", r.desc.ID, ErrNotFound)
}

// retire refuses new users and waits until the present ones left or ctx is done.
func (r *region) retire(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	idle := r.idle
	if r.users > 0 && idle == nil {
		idle = make(chan struct{})
		r.idle = idle
	}
	busy := r.users > 0
	r.mu.Unlock()
	if !busy {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("deregister region %d: transfers still use it: %w", r.desc.ID, ctx.Err())
	}
}

// attach registers r with a transport, once.
func (r *region) attach(tr *transport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.mrs[tr.name] != nil || r.device != nil && !tr.hmem {
		return nil
	}
	key := fabric.RegionKey{ID: uint64(r.desc.ID), Secret: r.desc.Secret}
	mr, err := tr.dom.Reg(r.buffer(), fabric.AccessRemoteRead|fabric.AccessRemoteWrite, key)
	if err != nil {
		return fmt.Errorf("register %d bytes at %#x with %s: %w", r.desc.Size, r.desc.Data, tr.name, err)
	}
	if r.mrs == nil {
		r.mrs = map[string]fabric.MR{}
	}
	r.mrs[tr.name] = mr
	return nil
}

// detach takes r back from one transport.
func (r *region) detach(tr *transport) error {
	r.mu.Lock()
	mr := r.mrs[tr.name]
	delete(r.mrs, tr.name)
	r.mu.Unlock()
	if mr == nil {
		return nil
	}
	return mr.Close()
}

// buffer is the memory in the words of providers.
func (r *region) buffer() fabric.Buffer {
	b := fabric.Buffer{Addr: r.desc.Data, Len: r.desc.Size}
	switch {
	case r.device == nil:
	case r.device.Vendor == device.HIP:
		b.Kind, b.Device = fabric.MemHIP, r.device.Ordinal
	default:
		b.Kind, b.Device = fabric.MemCUDA, r.device.Ordinal
	}
	return b
}

// descriptor is what segments in r carry on a transport.
func (r *region) descriptor(tr *transport) (fabric.MRDesc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mr := r.mrs[tr.name]
	switch {
	case mr != nil:
		return mr.Desc(), nil
	case r.closed:
		return 0, fmt.Errorf("local region %d was deregistered: %w", r.desc.ID, ErrNotFound)
	}
	return 0, fmt.Errorf("local region %d is memory of %v, which %s does not move on this host: %w",
		r.desc.ID, r.device, tr.name, ErrUnsupported)
}

// revoke takes r back from all transports: after that no peer can touch the memory.
func (r *region) revoke() error {
	r.mu.Lock()
	mrs := r.mrs
	r.mrs = nil
	r.mu.Unlock()
	var all error
	for name, mr := range mrs {
		if err := mr.Close(); err != nil {
			all = errors.Join(all, fmt.Errorf("deregister region %d from %s: %w", r.desc.ID, name, err))
		}
	}
	return all
}

// newRegion describes memory at addr, which must be mapped for reading and writing. Nothing is
// touched.
func (e *Engine) newRegion(addr, size uint64, ordinal int, loc MemoryLocation) (*region, error) {
	if addr+size < addr {
		return nil, fmt.Errorf("register %d bytes at %#x: the end wraps round: %w", size, addr, ErrInvalid)
	}
	if loc < LocUnknown || loc > LocGPU {
		return nil, fmt.Errorf("register %d bytes at location %d: want 0 (unknown), 1 (CPU) or 2 (GPU): %w", size, loc, ErrInvalid)
	}
	on, err := locate(addr, size, ordinal, loc, e.backends.movesGPUMemory())
	if err != nil {
		return nil, fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	}
	if on == nil {
		if err := memory.CheckMapped(addr, size); err != nil {
			return nil, fmt.Errorf("register %d bytes at %#x: %w: %w", size, addr, err, ErrInvalid)
		}
	}
	d := NewMemoryDesc()
	d.EngineKey, d.Incarnation = e.self.Key, e.self.Incarnation
	d.DeviceID, d.Data, d.Size, d.Loc = ordinal, addr, size, loc
	switch {
	case on != nil:
		d.Loc, d.DeviceID, d.DeviceBusID = LocGPU, on.Ordinal, on.BusID
		e.export(&d, on)
	case loc == LocCPU:
		d.NUMANode = memory.NUMANode(addr)
	}
	if _, err := rand.Read(d.Secret[:]); err != nil {
		return nil, fmt.Errorf("make a region key: %w", err)
	}
	return &region{desc: d, device: on}, nil
}

// RegisterMemory makes size bytes at addr reachable for whoever gets the descriptor. The memory is
// not touched and stays the caller's, who keeps it mapped until DeregisterMemory returned. Host
// memory that this process may not read and write is refused, and the error names its first page.
// GPU memory is checked with the driver: it must be of the device with this ordinal, or of any if
// that is negative, and lie within one allocation. Of memory at an unknown location the driver is
// asked where it is.
func (e *Engine) RegisterMemory(addr, size uint64, ordinal int, loc MemoryLocation) (MemoryDesc, error) {
	if e.closed() {
		return NewMemoryDesc(), fmt.Errorf("register memory: %w", ErrClosed)
	}
	r, err := e.newRegion(addr, size, ordinal, loc)
	if err != nil {
		return NewMemoryDesc(), err
	}
	e.store.addRegion(r)
	for _, tr := range e.backends.openTransports() {
		if err := r.attach(tr); err != nil {
			e.store.removeRegion(r.desc.ID)
			return NewMemoryDesc(), errors.Join(err, r.revoke())
		}
	}
	return r.desc, nil
}

// DeregisterMemory takes a region back. It waits for transfers that use it on this side, for as
// long as their deadline allows but at most deregisterWait, and then closes their paths; when it
// returns nobody touches the memory any more. Unknown or foreign descriptors are ignored.
func (e *Engine) DeregisterMemory(d MemoryDesc) error {
	r := e.store.regionOf(d, e.self.Key)
	if r == nil || !e.store.removeRegion(r.desc.ID) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), deregisterWait)
	defer cancel()
	if err := r.retire(ctx); err != nil {
		for _, p := range e.store.allPeers() {
			p.closePaths(fmt.Errorf("region %d deregistered with a transfer stuck: %w", r.desc.ID,
				ErrBadState))
			p.parked.fail(r.gone)
		}
	}
	return r.revoke()
}
