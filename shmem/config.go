// SPDX-License-Identifier: MIT

package shmem

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"mori/core/device"
	"mori/shmem/internal/arena"
	"mori/shmem/internal/heap"
)

// A Mode is how the symmetric heap is made.
type Mode = heap.Mode

// The modes, MORI_SHMEM_MODE.
const (
	StaticHeap = heap.StaticHeap // one block of HeapSize
	VMMHeap    = heap.VMMHeap    // grows in chunks up to HeapSize
	Isolation  = heap.Isolation  // each allocation is a block of its own
)

// Config shapes a World. All PEs have the same Mode, HeapSize and ChunkSize, and all a Device or
// none.
type Config struct {
	Device     *device.Device // whose memory the heap is; nil: host memory
	Mode       Mode
	HeapSize   uint64        // bytes: of the heap, of what it may grow to, of all blocks together
	ChunkSize  uint64        // bytes by which a VMMHeap grows; 0 is 64 MiB
	DisableP2P bool          // map no peer's memory: go through core/fabric even on one host
	NodeID     string        // PEs with equal ids map each other's memory
	Host       string        // address that PEs of other hosts reach this one at; "": only this host does
	QPPerPE    int           // MORI_NUM_QP_PER_PE, of NICs
	NIC        string        // to whose queues kernels post, "emu0" is an emulated one; "": the host posts for them
	Timeout    time.Duration // of collective calls and waits, 0 = none
	Log        *slog.Logger  // nil: none

	// Interrupt is asked every now and then by a call that waits, on the goroutine that called. An
	// error ends the wait. A collective call that it ends leaves the PEs out of step. Nil: none.
	Interrupt func() error
}

const (
	defaultChunk = 64 << 20
	leastHeap    = arena.Reserved + arena.Grain
	mostHeap     = 1 << 45
)

// validate refuses what cannot be, and fills in what is left out. root is the root of the file
// system.
func (c *Config) validate(root fs.FS) error {
	if c.Mode < StaticHeap || c.Mode > Isolation {
		return fmt.Errorf("heap mode %d: %w", int(c.Mode), ErrInvalid)
	}
	if c.HeapSize < leastHeap || c.HeapSize > mostHeap {
		return fmt.Errorf("a heap of %d bytes, want %d to %d: %w", c.HeapSize, leastHeap, uint64(mostHeap), ErrInvalid)
	}
	if n, who := heap.MemoryLimit(root); c.Device == nil && n > 0 && c.HeapSize > n {
		return fmt.Errorf("a heap of %d bytes, %s allows %d: reduce MORI_SHMEM_HEAP_SIZE: %w", c.HeapSize, who, n, ErrNoMemory)
	}
	if c.ChunkSize == 0 {
		c.ChunkSize = defaultChunk
	}
	c.ChunkSize = min(c.ChunkSize, c.HeapSize)
	if c.Device != nil {
		if err := c.fit(); err != nil {
			return err
		}
	}
	if c.Mode == VMMHeap && c.ChunkSize < leastHeap {
		return fmt.Errorf("a heap that grows by %d bytes, want at least %d: %w", c.ChunkSize, leastHeap, ErrInvalid)
	}
	return nil
}

// fit makes sizes what the device can have.
func (c *Config) fit() error {
	if total := c.Device.Bytes; c.HeapSize > total {
		return fmt.Errorf("a heap of %d bytes on %s, which has %d: reduce MORI_SHMEM_HEAP_SIZE: %w", c.HeapSize, c.Device, total, ErrNoMemory)
	}
	if c.Mode != VMMHeap {
		return nil
	}
	v, err := c.Device.Virtual()
	if errors.Is(err, errors.ErrUnsupported) {
		if c.Log != nil {
			c.Log.Warn("the heap does not grow: it has its full size from the start", "because", err)
		}
		c.Mode = StaticHeap
		return nil
	}
	if err != nil {
		return err
	}
	c.HeapSize, c.ChunkSize = v.Round(c.HeapSize), v.Round(c.ChunkSize)
	c.ChunkSize = min(c.ChunkSize, c.HeapSize)
	return nil
}
