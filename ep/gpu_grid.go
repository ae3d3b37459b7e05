// SPDX-License-Identifier: MIT

package ep

import "mori/core/device"

// Launch is how many blocks a kernel gets, and warps for each; what is not above 0 is chosen. More than the device runs at once are
// never launched, since blocks wait for each other.
type Launch struct{ Blocks, Warps int }

const (
	dispatchWarps  = 4
	dispatchBlocks = 24 // 32 for large rows: fewer bytes are on their way for each token otherwise
	largeRow       = 8 << 10
	combineBlocks  = 64
	fewTokens      = 256 // are combined by blocks of 4 warps, so that their rows come by way of more multiprocessors
	mostStage      = 7168
	line           = 128 // bytes, of which stages in shared memory are multiples
)

// mori/device/spread_stream.hpp and copy_stream.hpp: shared memory of a warp, for stages of so many bytes.
func spreadShared(stage int) int { return 4*(128+32*8) + 4*stage }
func streamShared(stage int) int { return 256 + 8*stage }

// launch fits a grid to the device.
func (k *kernels) launch(hint Launch, blocks, warps int) device.Grid {
	if hint.Blocks > 0 {
		blocks = hint.Blocks
	}
	if hint.Warps > 0 {
		warps = hint.Warps
	}
	warps = min(warps, mostThreads/k.dev.Warp)
	blocks = min(max(blocks, 1), k.dev.Units)
	return device.Grid{Blocks: [3]uint32{uint32(blocks)}, Threads: [3]uint32{uint32(warps * k.dev.Warp)}}
}

func (k *kernels) dispatchGrid(hint Launch, tokens int, rowBytes uint64) device.Grid {
	most := dispatchBlocks
	if rowBytes > largeRow {
		most = 32
	}
	g := k.launch(hint, min((tokens+dispatchWarps-1)/dispatchWarps, most), dispatchWarps)
	stage := (min(int(rowBytes), mostStage) + line - 1) / line * line
	g.Shared = k.shared(g, spreadShared, stage, dispatchShared)
	return g
}

func (k *kernels) combineGrid(hint Launch, tokens int, moves bool) device.Grid {
	warps := mostThreads / k.dev.Warp
	if tokens <= fewTokens {
		warps = 4
	}
	g := k.launch(hint, min((tokens+warps-1)/warps, combineBlocks), warps)
	if moves {
		g.Shared = k.shared(g, streamShared, 1024, combineShared)
	}
	return g
}

// shared is what a block gets for stages of the size, or of the largest for which there is room; own is what its kernel has itself.
func (k *kernels) shared(g device.Grid, warp func(stage int) int, stage, own int) uint32 {
	if !k.bulk {
		return 0
	}
	warps := int(g.Threads[0]) / k.dev.Warp
	for ; stage >= 4*line; stage -= line {
		// A kernel cuts its memory into lines for each warp.
		bytes := warps * ((warp(stage) + line - 1) / line * line)
		if bytes <= k.room(own) {
			return uint32(bytes)
		}
	}
	return 0
}
