// SPDX-License-Identifier: MIT

package access

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/peers"
)

// A Memory touches the memory of blocks, this PE's and what is mapped here of others'. Where it is
// decides how: Host by loads and stores, GPU by what a driver does. Nothing else in this package
// touches a heap by its address.
type Memory interface {
	// Move copies n bytes between memory of a block and any memory of this process, which the user
	// says is there. What is put is visible to its PE afterwards. Parts that overlap are copied as if
	// the source were read before.
	Move(dst, src, n uint64) error

	// MoveLater is move that may return before it is done, which settle waits for.
	MoveLater(dst, src, n uint64) error

	// MoveStrided is move of count elements of size bytes, so many bytes apart.
	MoveStrided(dst, dstep, src, sstep, size, count uint64) error

	// Copy is move between memory that is known to be there.
	Copy(dst, src, n uint64) error

	// Atomic does op on the word of 4 or 8 bytes at at, and returns what was there.
	Atomic(op AtomicOp, size int, at, value, compare uint64) (old uint64, err error)

	// Load returns where n bytes at at can be loaded: there, or in buf, to which they are brought, or
	// a longer one that takes its place.
	Load(at, n uint64, buf []byte) (uint64, []byte, error)

	// Clear makes zeros of n bytes.
	Clear(at, n uint64) error

	// Settle waits until all that was moved later is done.
	Settle() error
}

// Host is memory that the CPU loads and stores.
type Host struct{}

func (Host) Move(dst, src, n uint64) error {
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
			g := NewGPU(p.Device, time.Minute, nil)
			return errors.Join(g.Move(dst, src, n), g.Close())
		}
	}
	return Unmapped(why)
}

func (h Host) MoveLater(dst, src, n uint64) error { return h.Move(dst, src, n) }

func (Host) MoveStrided(dst, dstep, src, sstep, size, count uint64) error {
	if err := memory.MoveStrided(dst, dstep, src, sstep, size, count); err != nil {
		return Unmapped(err)
	}
	memory.Fence()
	return nil
}

func (Host) Copy(dst, src, n uint64) error {
	memory.Copy(dst, src, n)
	return nil
}

func (Host) Atomic(op AtomicOp, size int, at, value, compare uint64) (uint64, error) {
	if size == 4 {
		return uint64(Atomic32(op, at, uint32(value), uint32(compare))), nil
	}
	return Atomic64(op, at, value, compare), nil
}

func (Host) Load(at, _ uint64, buf []byte) (uint64, []byte, error) { return at, buf, nil }

func (Host) Clear(at, n uint64) error {
	clear(memory.Bytes(at, n))
	return nil
}

func (Host) Settle() error { return nil }

// Unmapped returns the error for a local address that is no memory of this process.
func Unmapped(err error) error {
	return fmt.Errorf("the local memory is not mapped: %w (%w)", peers.ErrInvalid, err)
}

// Span returns how many bytes nelems elements of elem bytes take up that are stride elements apart.
func Span(stride int64, nelems, elem uint64) (uint64, error) {
	if elem == 0 {
		return 0, fmt.Errorf("elements of 0 bytes: %w", peers.ErrInvalid)
	}
	if stride < 1 {
		return 0, fmt.Errorf("a stride of %d elements: %w", stride, peers.ErrInvalid)
	}
	if nelems == 0 {
		return 0, nil
	}
	over, apart := bits.Mul64(nelems-1, uint64(stride))
	apart, carry := bits.Add64(apart, 1, 0)
	high, n := bits.Mul64(apart, elem)
	if over|carry|high != 0 {
		return 0, fmt.Errorf("more bytes than the address space has: %w", peers.ErrInvalid)
	}
	return n, nil
}
