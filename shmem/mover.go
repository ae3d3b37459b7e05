// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"time"

	"mori/core/device"
	"mori/core/memory"
)

// A mover touches the memory of blocks, this PE's and what is mapped here of others'. Where it is decides how: hostMemory by loads and
// stores, gpuHeap by what a driver does. Nothing else in this package touches a heap by its address.
type mover interface {
	// move copies n bytes between memory of a block and any memory of this process, which the user says is there. What is put is visible
	// to its PE afterwards. Parts that overlap are copied as if the source were read before.
	move(dst, src, n uint64) error

	// moveLater is move that may return before it is done, which settle waits for.
	moveLater(dst, src, n uint64) error

	// moveStrided is move of count elements of size bytes, so many bytes apart.
	moveStrided(dst, dstep, src, sstep, size, count uint64) error

	// copy is move between memory that is known to be there.
	copy(dst, src, n uint64) error

	// atomic does op on the word of 4 or 8 bytes at at, and returns what was there.
	atomic(op AtomicOp, size int, at, value, compare uint64) (old uint64, err error)

	// look returns where n bytes at at can be loaded: there, or in buf, to which they are brought, or a longer one that takes its place.
	look(at, n uint64, buf []byte) (uint64, []byte, error)

	// clear makes zeros of n bytes.
	clear(at, n uint64) error

	// settle waits until all that was moved later is done.
	settle() error
}

// hostMemory is memory that the CPU loads and stores.
type hostMemory struct{}

func (hostMemory) move(dst, src, n uint64) error {
	if err := memory.Move(dst, src, n); err != nil {
		return moveDevice(dst, src, n, err)
	}
	memory.Fence()
	return nil
}

// moveDevice is move to or from memory of a GPU, whose driver does it; why is why the CPU does not.
func moveDevice(dst, src, n uint64, why error) error {
	for _, at := range []uint64{dst, src} {
		if p, err := device.Lookup(at); err == nil && p.Kind == device.OnDevice && p.Device != nil {
			g := newGPUHeap(p.Device, time.Minute, nil)
			return errors.Join(g.move(dst, src, n), g.close())
		}
	}
	return unmapped(why)
}

func (h hostMemory) moveLater(dst, src, n uint64) error { return h.move(dst, src, n) }

func (hostMemory) moveStrided(dst, dstep, src, sstep, size, count uint64) error {
	if err := memory.MoveStrided(dst, dstep, src, sstep, size, count); err != nil {
		return unmapped(err)
	}
	memory.Fence()
	return nil
}

func (hostMemory) copy(dst, src, n uint64) error {
	memory.Copy(dst, src, n)
	return nil
}

func (hostMemory) atomic(op AtomicOp, size int, at, value, compare uint64) (uint64, error) {
	if size == 4 {
		return uint64(atomic32(op, at, uint32(value), uint32(compare))), nil
	}
	return atomic64(op, at, value, compare), nil
}

func (hostMemory) look(at, _ uint64, buf []byte) (uint64, []byte, error) { return at, buf, nil }

func (hostMemory) clear(at, n uint64) error {
	clear(memory.Bytes(at, n))
	return nil
}

func (hostMemory) settle() error { return nil }
