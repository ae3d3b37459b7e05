// SPDX-License-Identifier: MIT

package host

import (
	"fmt"

	"mori/core/memory"
	"mori/ep/internal/plan"
	"mori/shmem"
)

// buffers is the symmetric memory of an op on this rank: the layout, and words that only this rank
// uses behind it.
type buffers struct {
	world  *shmem.World
	cfg    plan.Config
	layout plan.Layout
	base   uint64
	rows   int // that the last dispatch brought
}

// allocate makes the memory. Collective.
func (b *buffers) allocate() (err error) {
	size := b.layout.Size + b.cfg.OwnBytes()
	if b.base, err = b.world.MallocHost(plan.Alignment, size); err != nil {
		return fmt.Errorf("allocate the buffers of an op: %w", err)
	}
	// The memory may have been another op's. No rank sets a flag before all have cleared theirs.
	clear(memory.Bytes(b.base, b.layout.DispatchOut.Offset))
	clear(memory.Bytes(b.base+b.layout.Size, b.cfg.OwnBytes()))
	if err := b.world.BarrierAll(); err != nil {
		return fmt.Errorf("make an op: %w", err)
	}
	return nil
}

// free releases the memory. Collective.
func (b *buffers) free() error {
	base := b.base
	b.base = 0
	return b.world.Free(base)
}

// Base returns the address of the layout in symmetric memory, 0 after Close.
func (b *buffers) Base() uint64 { return b.base }

// Received returns the address of the int32 with the number of received rows.
func (b *buffers) Received() uint64 { return b.base + b.layout.Size + plan.ReceivedWord }

// LocalCounts returns the address of the int32 [ExpertsPerRank] that CountLocal fills.
func (b *buffers) LocalCounts() uint64 { return b.base + b.layout.Size + plan.LocalCounts }

// Rows returns how many rows the last dispatch brought, 0 after a combine.
func (b *buffers) Rows() (int, error) { return int(memory.Load32(b.Received())), nil }

// setReceived sets the number of received rows.
func (b *buffers) setReceived(rows int) {
	b.rows = rows
	memory.Store32(b.Received(), uint32(rows))
}

// at returns the address of a region here.
func (b *buffers) at(r plan.Region) uint64 { return b.base + r.Offset }
