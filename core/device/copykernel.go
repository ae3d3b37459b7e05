// SPDX-License-Identifier: MIT

package device

import (
	"errors"
	"sync"

	"mori/native/abi"
)

// copyKernels holds the kernel that copies segments, one for each device that has a Copier.
var copyKernels struct {
	sync.Mutex
	of map[*Device]*copyKernel
}

// A copyKernel is a loaded mori_io_copy_blocks.
type copyKernel struct {
	users    int
	module   *Module
	function *Function
	warp     uint32
	threads  uint32
	shared   uint32 // bytes per block of shared memory for copies
}

// Launch shapes, tuned on H200 (docs/lab/block-copy.md). If the architecture has bulk copies, each
// warp uses eight stages of 2 KiB in shared memory. Otherwise, and for short segments, 512 threads
// copy through registers.
const (
	bulkThreads, plainThreads = 256, 512
	bulkShared                = bulkThreads / 32 * (abi.StreamHeadBytes + abi.StreamStages*2048)
	shortSegment              = 4096
	usualBlocks, mostBlocks   = 32, 64
	bytesOfBlock              = 64 << 10 // a grid larger than its work is slow: every warp reads the list over PCIe
	smallCopy                 = 8 << 10  // by one warp
)

// useCopyKernel returns the kernel of d, loaded. Each use ends with drop.
func useCopyKernel(d *Device) (*copyKernel, error) {
	copyKernels.Lock()
	defer copyKernels.Unlock()
	k := copyKernels.of[d]
	if k == nil {
		var err error
		if k, err = loadCopyKernel(d); err != nil {
			return nil, err
		}
		if copyKernels.of == nil {
			copyKernels.of = make(map[*Device]*copyKernel)
		}
		copyKernels.of[d] = k
	}
	k.users++
	return k, nil
}

func loadCopyKernel(d *Device) (*copyKernel, error) {
	m, err := d.LoadKernels("io_copy_blocks")
	if err != nil {
		return nil, err
	}
	f, err := m.Function("mori_io_copy_blocks")
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	k := &copyKernel{module: m, function: f, warp: uint32(max(d.Warp, 32)), threads: plainThreads}
	if d.Vendor == CUDA && d.Capability[0] >= 9 && d.MaxShared >= bulkShared && d.Driver >= newPTXDriver {
		if err := f.SetShared(bulkShared); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		k.threads, k.shared = bulkThreads, bulkShared
	}
	return k, nil
}

// drop unloads the kernel after its last user.
func (k *copyKernel) drop() error {
	copyKernels.Lock()
	defer copyKernels.Unlock()
	if k.users--; k.users > 0 {
		return nil
	}
	delete(copyKernels.of, k.module.dev)
	return k.module.Close()
}

// grid returns the shape of a launch: blocks in proportion to the bytes.
func (k *copyKernel) grid(count int, total uint64, most int) Grid {
	threads, shared := k.threads, k.shared
	usual := uint64(usualBlocks)
	if total/uint64(count) < shortSegment {
		threads, shared, usual = plainThreads, 0, mostBlocks
	}
	if most > 0 {
		usual = uint64(most)
	}
	if total <= smallCopy {
		threads, shared = k.warp, 0
	}
	blocks := min(usual, (total+bytesOfBlock-1)/bytesOfBlock)
	return Grid{Blocks: [3]uint32{uint32(blocks)}, Threads: [3]uint32{threads}, Shared: shared}
}
