// SPDX-License-Identifier: MIT

package gpu

import (
	"mori/core/device"
	"mori/ep/internal/launch"
	"mori/native/abi"
)

const (
	mostStage    = 7168
	combineStage = 3072
	movedStage   = 1024
	line         = 128 // bytes; stages in shared memory are multiples of it
)

// Shared memory of a warp for stages of a number of bytes.
func spreadShared(stage int) int { return abi.SpreadHeadBytes + abi.SpreadStages*stage }
func streamShared(stage int) int { return abi.StreamHeadBytes + abi.StreamStages*stage }

// grid fits a shape to the device.
func (k *kernels) grid(s launch.Shape) device.Grid {
	warps := min(max(s.Warps, 1), MostThreads/k.dev.Warp)
	blocks := min(max(s.Blocks, 1), k.dev.Units)
	return device.Grid{Blocks: [3]uint32{uint32(blocks)}, Threads: [3]uint32{uint32(warps * k.dev.Warp)}}
}

// wide returns a grid of full blocks.
func (k *kernels) wide(blocks int) device.Grid {
	return k.grid(launch.Shape{Blocks: blocks, Warps: MostThreads / k.dev.Warp})
}

// warps returns how many warps a block has.
func (k *kernels) warps(g device.Grid) int { return int(g.Threads[0]) / k.dev.Warp }

// dispatchGrid has stages for rows that are copied in bulk.
func (k *kernels) dispatchGrid(s launch.Shape, rowBytes uint64, declared int) device.Grid {
	g := k.grid(s)
	g.Shared = k.shared(g, spreadShared, lines(min(int(rowBytes), mostStage)), declared)
	if warps := uint32(k.warps(g)); g.Shared > 0 {
		// Pieces of a row that all have the same length.
		stage := (int(g.Shared/warps) - spreadShared(0)) / abi.SpreadStages
		pieces := max(1, (int(rowBytes)+stage-1)/stage)
		g.Shared = warps * uint32(spreadShared(lines((int(rowBytes)+pieces-1)/pieces)))
	}
	return g
}

// combineGrid has stages for rows that are copied in bulk (mori/ep/pull.hpp), and for rows that are
// moved first.
func (k *kernels) combineGrid(s launch.Shape) device.Grid {
	g := k.grid(s)
	g.Shared = k.shared(g, streamShared, combineStage, combineShared)
	return g
}

// lines returns the bytes of whole lines that have room for a number of bytes.
func lines(bytes int) int { return (bytes + line - 1) / line * line }

// shared returns the shared memory of a block for stages of a size, or of the largest size that
// fits beside what the kernel declares itself.
func (k *kernels) shared(g device.Grid, warp func(stage int) int, stage, declared int) uint32 {
	if !k.bulk {
		return 0
	}
	warps := k.warps(g)
	for ; stage >= 4*line; stage -= line {
		// A kernel divides its memory into lines for each warp.
		bytes := warps * lines(warp(stage))
		if bytes <= k.room(declared) {
			return uint32(bytes)
		}
	}
	return 0
}
