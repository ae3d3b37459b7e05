// SPDX-License-Identifier: MIT

package region

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"mori/core/device"
	"mori/core/fabric"
	"mori/core/memory"
	"mori/io/internal/control"
	"mori/io/internal/descriptor"
	"mori/io/internal/errs"
	"mori/io/internal/transport"
)

// A Region is registered memory of this process. Safe for concurrent use.
type Region struct {
	desc   descriptor.Memory
	device *device.Device // nil for host memory

	mu     sync.Mutex
	closed bool
	users  int
	idle   chan struct{}        // made by Retire, closed when users is 0
	mrs    map[string]fabric.MR // by transport
}

// A Request describes memory to be registered.
type Request struct {
	Addr, Size uint64
	Ordinal    int // of the GPU; negative: any GPU
	Location   descriptor.Location

	AskDrivers bool // ask GPU drivers about host memory as well
	Export     bool // create a handle by which processes of this host map GPU memory
}

// New returns a region of the engine self. The memory must be mapped for reading and writing. New
// touches no byte of it. The region has no id yet, and is not registered with any transport.
func New(self *control.Self, q Request) (*Region, error) {
	addr, size := q.Addr, q.Size
	if addr+size < addr {
		return nil, fmt.Errorf("register %d bytes at %#x: the end wraps round: %w", size, addr,
			errs.ErrInvalid)
	}
	if q.Location < descriptor.LocUnknown || q.Location > descriptor.LocGPU {
		return nil, fmt.Errorf("register %d bytes at location %d: want 0 (unknown), 1 (CPU) or 2 (GPU): %w",
			size, q.Location, errs.ErrInvalid)
	}
	on, err := q.locate()
	if err != nil {
		return nil, fmt.Errorf("register %d bytes at %#x: %w", size, addr, err)
	}
	if on == nil {
		if err := memory.CheckMapped(addr, size); err != nil {
			return nil, fmt.Errorf("register %d bytes at %#x: %w: %w", size, addr, err, errs.ErrInvalid)
		}
	}
	d := descriptor.NewMemory()
	d.EngineKey, d.Incarnation = self.Key, self.Incarnation
	d.DeviceID, d.Data, d.Size, d.Loc = q.Ordinal, addr, size, q.Location
	switch {
	case on != nil:
		d.Loc, d.DeviceID, d.DeviceBusID = descriptor.LocGPU, on.Ordinal, on.BusID
		if q.Export {
			export(&d, on, self.Log)
		}
	case q.Location == descriptor.LocCPU:
		d.NUMANode = memory.NUMANode(addr)
	}
	if _, err := rand.Read(d.Secret[:]); err != nil {
		return nil, fmt.Errorf("make a region key: %w", err)
	}
	return &Region{desc: d, device: on}, nil
}

// Desc returns the region's descriptor for peers. The caller must not modify it.
func (r *Region) Desc() *descriptor.Memory { return &r.desc }

// Enter counts a local user. It reports false if the region is closed. The caller calls Leave when
// it is done.
func (r *Region) Enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.users++
	return true
}

// Leave removes a local user that Enter counted.
func (r *Region) Leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	if r.users == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// Open reports whether the region is registered.
func (r *Region) Open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.closed
}

// Gone returns the error for a transfer that needs r after it was deregistered.
func (r *Region) Gone() error {
	return fmt.Errorf("local region %d was deregistered: %w", r.desc.ID, errs.ErrNotFound)
}

// Retire rejects new users and waits until the present ones have left or ctx is done.
func (r *Region) Retire(ctx context.Context) error {
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

// Attach registers r with a transport, once. It skips a transport that does not take this kind of
// memory.
func (r *Region) Attach(t *transport.Transport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.mrs[t.Name()] != nil || r.device != nil && !t.TakesGPUMemory() {
		return nil
	}
	key := fabric.RegionKey{ID: uint64(r.desc.ID), Secret: r.desc.Secret}
	mr, err := t.Domain.Reg(r.buffer(), fabric.AccessRemoteRead|fabric.AccessRemoteWrite, key)
	if err != nil {
		return fmt.Errorf("register %d bytes at %#x with %s: %w", r.desc.Size, r.desc.Data, t.Name(), err)
	}
	if r.mrs == nil {
		r.mrs = map[string]fabric.MR{}
	}
	r.mrs[t.Name()] = mr
	return nil
}

// Detach removes r from one transport.
func (r *Region) Detach(t *transport.Transport) error {
	r.mu.Lock()
	mr := r.mrs[t.Name()]
	delete(r.mrs, t.Name())
	r.mu.Unlock()
	if mr == nil {
		return nil
	}
	return mr.Close()
}

// buffer returns the memory as providers describe it.
func (r *Region) buffer() fabric.Buffer {
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

// MRDesc returns the descriptor that segments in r need on a transport.
func (r *Region) MRDesc(t *transport.Transport) (fabric.MRDesc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mr := r.mrs[t.Name()]
	switch {
	case mr != nil:
		return mr.Desc(), nil
	case r.closed:
		return 0, r.Gone()
	}
	return 0, fmt.Errorf("local region %d is memory of %v, which %s cannot move on this host: %w",
		r.desc.ID, r.device, t.Name(), errs.ErrUnsupported)
}

// Revoke removes r from all transports. When it returns, no peer can access the memory.
func (r *Region) Revoke() error {
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
