// SPDX-License-Identifier: MIT

package ep

import (
	"mori/core/device"
	"mori/ep/internal/launch"
)

const (
	mostStage    = 7168
	combineStage = 3072
	movedStage   = 1024
	spreadStages = 4   // of a warp, in mori/device/spread_stream.hpp
	hostsBlocks  = 32  // between hosts, where the network is slower than they are, and its side copies by kernels, too, meanwhile
	line         = 128 // bytes, of which stages in shared memory are multiples
)

// LaunchOf returns what a dispatch, or a combine that moves its rows first, gets if it asks for
// this. On host memory it returns zeros.
func (o *Op) LaunchOf(dispatch bool, asked Launch, tokens int, rowBytes uint64) Launch {
	if o.gpu == nil {
		return Launch{}
	}
	what := launch.Combine
	if dispatch {
		what = launch.Dispatch
	}
	l := o.gpu.chooser.Choose(asked, what, tokens, rowBytes)
	g := o.gpu.kernels.launch(l)
	return Launch{Blocks: int(g.Blocks[0]), Warps: int(g.Threads[0]) / o.gpu.dev.Warp}
}

// mostBlocks returns how many blocks the cost model may suggest.
func (g *gpuSide) mostBlocks() int {
	most := g.op.opts.Blocks
	if most <= 0 {
		most = g.dev.Units / 2
	}
	if g.hosts != nil {
		most = min(most, hostsBlocks)
	}
	return max(1, min(most, g.dev.Units))
}

// mori/device/spread_stream.hpp and copy_stream.hpp: shared memory of a warp, for stages of so many
// bytes.
func spreadShared(stage int) int { return 128 + spreadStages*stage }
func streamShared(stage int) int { return 256 + 8*stage }

// launch fits a grid to the device.
func (k *kernels) launch(l Launch) device.Grid {
	warps := min(max(l.Warps, 1), mostThreads/k.dev.Warp)
	blocks := min(max(l.Blocks, 1), k.dev.Units)
	return device.Grid{Blocks: [3]uint32{uint32(blocks)}, Threads: [3]uint32{uint32(warps * k.dev.Warp)}}
}

// dispatchGrid has stages for rows that come by bulk copies.
func (k *kernels) dispatchGrid(l Launch, rowBytes uint64, own int) device.Grid {
	g := k.launch(l)
	g.Shared = k.shared(g, spreadShared, lines(min(int(rowBytes), mostStage)), own)
	if warps := uint32(int(g.Threads[0]) / k.dev.Warp); g.Shared > 0 {
		// Pieces of a row that are all as long.
		stage := (int(g.Shared/warps) - spreadShared(0)) / spreadStages
		pieces := max(1, (int(rowBytes)+stage-1)/stage)
		g.Shared = warps * uint32(spreadShared(lines((int(rowBytes)+pieces-1)/pieces)))
	}
	return g
}

// combineGrid has stages for rows that come by bulk copies (mori/ep/pull.hpp), and for those that
// are moved first.
func (k *kernels) combineGrid(l Launch) device.Grid {
	g := k.launch(l)
	g.Shared = k.shared(g, streamShared, combineStage, combineShared)
	return g
}

// dispatcher is the kernel of a dispatch, and its grid.
func (g *gpuSide) dispatcher(l Launch, rowBytes uint64) (*device.Function, device.Grid) {
	if g.hosts == nil {
		return g.kernels.dispatch, g.kernels.dispatchGrid(l, rowBytes, dispatchShared)
	}
	return g.kernels.dispatchHosts, g.kernels.dispatchGrid(l, rowBytes, dispatchHostsShared)
}

// combiner is the kernel of a combine, and its grid.
func (g *gpuSide) combiner(l Launch, moves, forwards bool) (*device.Function, device.Grid) {
	if g.hosts == nil {
		return g.kernels.combine, g.kernels.combineGrid(l)
	}
	f := g.kernels.combineHosts
	if forwards {
		f = g.kernels.combineForward
	}
	grid := g.kernels.launch(l)
	if moves {
		grid.Shared = g.kernels.shared(grid, streamShared, movedStage, combineShared)
	}
	return f, grid
}

// between adds what kernels want to know of other hosts.
func (g *gpuSide) between(args *device.Args) *device.Args {
	if g.hosts != nil {
		args.Uint64(g.hosts.at)
	}
	return args
}

// lines is whole lines of so many bytes.
func lines(bytes int) int { return (bytes + line - 1) / line * line }

// shared is what a block gets for stages of the size, or of the largest for which there is room;
// own is what its kernel has itself.
func (k *kernels) shared(g device.Grid, warp func(stage int) int, stage, own int) uint32 {
	if !k.bulk {
		return 0
	}
	warps := int(g.Threads[0]) / k.dev.Warp
	for ; stage >= 4*line; stage -= line {
		// A kernel cuts its memory into lines for each warp.
		bytes := warps * lines(warp(stage))
		if bytes <= k.room(own) {
			return uint32(bytes)
		}
	}
	return 0
}
