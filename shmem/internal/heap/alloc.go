// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"errors"

	"mori/core/device"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
)

// An allocPart is a part in its own GPU allocation, which other processes map by its IPC handle.
type allocPart struct {
	dev  *device.Device
	mem  *device.Memory
	base uint64
}

// newAllocPart allocates limit bytes, zeroed, at a multiple of align.
func newAllocPart(g *access.GPU, limit, align uint64) (*allocPart, error) {
	n := limit
	if align > arena.Grain { // drivers align to this anyway
		n += align
	}
	mem, err := g.Device.Alloc(n)
	if err != nil {
		return nil, access.NoMemory(err)
	}
	p := &allocPart{dev: g.Device, mem: mem, base: arena.RoundUp(mem.Addr(), max(align, arena.Grain))}
	if err = g.Clear(mem.Addr(), n); err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return p, nil
}

func (p *allocPart) addr() uint64      { return p.base }
func (p *allocPart) grow(uint64) error { return nil } // it has its full size from the start
func (p *allocPart) close() error      { return p.mem.Close() }

func (p *allocPart) offer(o *offer) (err error) {
	o.IPC, err = p.dev.ExportIPC(p.base)
	return err
}

// An allocView is another PE's allocPart.
type allocView struct{ mem *device.IPCMemory }

// openAllocView maps another PE's allocation for g's device. Memory of this process is not mapped
// again: g's device gets peer access to its owner, which is nil otherwise. Doing the same for other
// processes would need a context on each device, which costs some hundred MiB.
func openAllocView(g *access.GPU, o *offer, owner *device.Device) (*allocView, error) {
	if owner != nil {
		if err := g.Device.EnablePeer(owner); err != nil {
			return nil, err
		}
	}
	mem, err := g.Device.OpenIPC(o.IPC)
	if err != nil {
		return nil, err
	}
	return &allocView{mem}, nil
}

func (v *allocView) addr() uint64                         { return v.mem.Addr() }
func (v *allocView) follow(context.Context, *offer) error { return nil }
func (v *allocView) close() error                         { return v.mem.Close() }
