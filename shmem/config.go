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

// Config shapes a World. Mode, HeapSize and ChunkSize must be equal on all PEs. Either all PEs set
// Device, or none.
type Config struct {
	Device     *device.Device // whose memory the heap is; nil: host memory
	Mode       Mode
	HeapSize   uint64        // bytes: size of a StaticHeap, limit of a VMMHeap, limit of all isolated blocks together
	ChunkSize  uint64        // bytes by which a VMMHeap grows; 0 is 64 MiB
	DisableP2P bool          // do not map other PEs' memory; use core/fabric even on one host
	NodeID     string        // PEs with equal ids map each other's memory
	Host       string        // address for PEs of other hosts; "": only this host can reach this PE
	QPPerPE    int           // MORI_NUM_QP_PER_PE, queue pairs per PE on NICs
	NIC        string        // NIC whose queues kernels post to, "emu0" is emulated; "": the host posts for kernels
	Timeout    time.Duration // time limit of collective calls and waits, 0 = none
	Log        *slog.Logger  // nil: none

	// Interrupt is called from time to time by a waiting call, on the caller's goroutine. If it
	// returns an error, the wait ends. If that ends a collective call, the PEs are out of step.
	// Nil: not called.
	Interrupt func() error
}

const (
	defaultChunk = 64 << 20
	leastHeap    = arena.Reserved + arena.Grain
	mostHeap     = 1 << 45
)

// validate rejects invalid values and fills in defaults. root is the root of the file system.
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

// fit rounds the sizes to what the device supports.
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
