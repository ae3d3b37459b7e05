// SPDX-License-Identifier: MIT

package heap

import (
	"sync/atomic"

	"mori/core/device"
	"mori/core/memory"
	"mori/shmem/internal/access"
	"mori/shmem/internal/remote"
)

// A Block is symmetric memory: every PE has one of the same size.
type Block struct {
	Mem   access.Memory // touches it
	OnGPU bool
	Base  uint64 // address of this PE's part
	Size  uint64 // that it may have

	part    part
	have    atomic.Uint64                  // of Size, what all PEs have and may touch
	id      uint64                         // of an isolated block, the same on all PEs
	regions atomic.Pointer[remote.Regions] // for PEs that do not map it; nil if all do
	peers   []place
}

// At returns where PE pe's part of b is mapped in this process, 0 if it is not.
func (b *Block) At(pe int) uint64 { return b.peers[pe].mapped }

// Near returns where this process has PE pe's copy of n bytes at the symmetric address addr, 0 if
// they are not mapped or not in b. A nil Block has nothing.
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

// Regions returns how PEs reach b that do not map it, nil if all map it.
func (b *Block) Regions() *remote.Regions { return b.regions.Load() }

// Have returns how many bytes of b all PEs have and may touch.
func (b *Block) Have() uint64 { return b.have.Load() }

// Loads reports whether this CPU can load PE pe's part of b.
func (b *Block) Loads(pe int) bool { return !b.OnGPU && b.peers[pe].mapped != 0 }

// Holds reports whether n bytes at addr are in b, and at which offset.
func (b *Block) Holds(addr, n uint64) (off uint64, ok bool) {
	off = addr - b.Base
	have := b.have.Load()
	return off, off < have && n <= have-off
}

// A place is where a PE's part of a block is, as this PE reaches it.
type place struct {
	mapped uint64     // address in this process, 0: not mapped
	view   mappedPart // whose mapping that is; nil for our own
}

// An offer is what a PE says to the others about its part of a block.
type offer struct {
	Ticket memory.Ticket    // of a segment
	IPC    device.IPCHandle // of an allocation of a GPU
	Chunks []sharedChunk    // of virtual memory of a GPU
	Key    []byte           // for the network, of what is new
	Error  string           // why it has none
}
