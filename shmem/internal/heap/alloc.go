// SPDX-License-Identifier: MIT

package heap

import (
	"context"
	"errors"

	"mori/core/device"
	"mori/shmem/internal/access"
	"mori/shmem/internal/arena"
)

// An allocPart is a part in one allocation of a GPU, which other processes map by its IPC handle.
type allocPart struct {
	dev  *device.Device
	mem  *device.Memory
	base uint64
}

// newAllocPart allocates limit bytes at a multiple of align, all zeros.
func newAllocPart(g *access.GPU, limit, align uint64) (*allocPart, error) {
	n := limit
	if align > arena.Grain { // what drivers align to anyway
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
func (p *allocPart) grow(uint64) error { return nil } // it has its limit from the beginning
func (p *allocPart) close() error      { return p.mem.Close() }

func (p *allocPart) offer(o *offer) (err error) {
	o.IPC, err = p.dev.ExportIPC(p.base)
	return err
}

// An allocView is another PE's allocPart.
type allocView struct{ mem *device.IPCMemory }

// openAllocView maps another PE's allocation for g's device. Memory of this process itself is not
// mapped once more: g's device is let at that of its owner, which is nil otherwise. To do so for
// other processes would cost a context on each device, some hundred MiB.
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
