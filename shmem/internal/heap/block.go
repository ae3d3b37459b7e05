// SPDX-License-Identifier: MIT

package heap

import (
	"sync/atomic"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/remote"
)

// A Block is symmetric memory: every PE has a part of the same size.
type Block struct {
	Mem   access.Memory // accesses it
	OnGPU bool
	Base  uint64 // address of this PE's part
	Size  uint64 // maximum size

	part    part
	have    atomic.Uint64                  // the part of Size that all PEs have and may access
	id      uint64                         // id of an isolated block, equal on all PEs
	regions atomic.Pointer[remote.Regions] // for PEs that do not map it; nil if all do
	peers   []place
}

// At returns where PE pe's part of b is mapped in this process, 0 if it is not.
func (b *Block) At(pe int) uint64 { return b.peers[pe].mapped }

// Near returns the address in this process of PE pe's copy of n bytes at the symmetric address
// addr. It returns 0 if they are not mapped or not in b, or if b is nil.
func (b *Block) Near(addr, n uint64, pe int) uint64 {
	if b == nil || uint(pe) >= uint(len(b.peers)) {
		return 0
	}
	off, have, at := addr-b.Base, b.have.Load(), b.peers[pe].mapped
	if at == 0 || off >= have || n > have-off {
		return 0
	}
	return at + off
}

// Regions returns the regions by which PEs that do not map b reach it, nil if all map it.
func (b *Block) Regions() *remote.Regions { return b.regions.Load() }

// Have returns the number of bytes of b that all PEs have and may access.
func (b *Block) Have() uint64 { return b.have.Load() }

// Loads reports whether this CPU can load PE pe's part of b.
func (b *Block) Loads(pe int) bool { return !b.OnGPU && b.peers[pe].mapped != 0 }

// Holds reports whether n bytes at addr are in b, and returns their offset.
func (b *Block) Holds(addr, n uint64) (off uint64, ok bool) {
	off = addr - b.Base
	have := b.have.Load()
	return off, off < have && n <= have-off
}

// A place is the location of a PE's part of a block, as this PE reaches it.
type place struct {
	mapped uint64     // address in this process, 0: not mapped
	view   mappedPart // the mapping; nil for this PE's own part
}

// An offer is what a PE sends to the others about its part of a block.
type offer struct {
	Ticket memory.Ticket    // descriptor of a segment
	IPC    device.IPCHandle // handle of a GPU allocation
	Chunks []sharedChunk    // handles of a GPU's virtual memory
	Key    []byte           // key of the new region, for the network
	Error  string           // why this PE has no part
}
