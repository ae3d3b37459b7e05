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

// A Memory accesses blocks: this PE's parts, and those of other PEs that are mapped here. Host uses
// loads and stores, GPU uses the driver. No other code of this package accesses a heap by its
// address.
type Memory interface {
	// Move copies n bytes between a block and any memory of this process, which the caller
	// guarantees to exist. A put is visible to its PE afterwards. Overlapping parts are copied as
	// if the source were read first.
	Move(dst, src, n uint64) error

	// MoveLater is Move that may return before the copy has completed. Settle waits for it.
	MoveLater(dst, src, n uint64) error

	// MoveStrided is Move of count elements of size bytes with strides.
	MoveStrided(dst, dstep, src, sstep, size, count uint64) error

	// Copy is Move between two ranges that are known to exist.
	Copy(dst, src, n uint64) error

	// Atomic applies op to the word of 4 or 8 bytes at at, and returns its previous value.
	Atomic(op AtomicOp, size int, at, value, compare uint64) (old uint64, err error)

	// Load returns an address from which n bytes at at can be loaded: at itself, or buf, into which
	// it copies them. It replaces buf by a longer one if needed.
	Load(at, n uint64, buf []byte) (uint64, []byte, error)

	// Clear sets n bytes to zero.
	Clear(at, n uint64) error

	// Settle waits for all copies of MoveLater.
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

// moveDevice is Move to or from GPU memory, by its driver. why is the reason why the CPU cannot
// copy.
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

// Unmapped returns the error for a local address that is not mapped in this process.
func Unmapped(err error) error {
	return fmt.Errorf("the local memory is not mapped: %w (%w)", peers.ErrInvalid, err)
}

// Span returns the number of bytes from the first to the last of nelems elements of elem bytes with
// the given stride.
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
