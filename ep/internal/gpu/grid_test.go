// SPDX-License-Identifier: MIT

package gpu

import (
	"testing"

	"mori/core/device"
	"mori/ep/internal/launch"
)

// A grid fits the device, and its stages fit beside the shared memory that the kernel declares.
func TestGridsFitTheDevice(t *testing.T) {
	const mostShared = 227 << 10 // of a block on an H200
	k := &kernels{dev: &device.Device{Info: device.Info{Warp: 32, Units: 132, MaxShared: mostShared}}, bulk: true}
	for _, s := range []launch.Shape{{Blocks: -1, Warps: -1}, {Blocks: 1, Warps: 1}, {Blocks: 24, Warps: 5}, {Blocks: 999, Warps: 99}} {
		for _, rowBytes := range []uint64{1, 128, 7168, 14336, 57344} {
			for _, c := range []struct {
				grid     device.Grid
				declared int
			}{
				{k.dispatchGrid(s, rowBytes, dispatchShared), dispatchShared},
				{k.dispatchGrid(s, rowBytes, dispatchHostsShared), dispatchHostsShared},
				{k.combineGrid(s), combineShared},
			} {
				g, shared := c.grid, int(c.grid.Shared)
				if g.Blocks[0] < 1 || g.Blocks[0] > 132 || g.Threads[0] < 32 || g.Threads[0] > MostThreads {
					t.Errorf("%+v: %d blocks of %d threads", s, g.Blocks[0], g.Threads[0])
				}
				if shared%(line*k.warps(g)) != 0 || shared+c.declared > mostShared {
					t.Errorf("%+v, rows of %d bytes: %d bytes of shared memory beside %d", s, rowBytes, shared, c.declared)
				}
			}
		}
	}
	// 8 warps copy a row of 7168 bytes, in 4 stages each, through what the kernel leaves.
	if g := k.dispatchGrid(launch.Shape{Blocks: 24, Warps: 8}, 7168, dispatchShared); g.Shared == 0 {
		t.Error("a dispatch gets no shared memory")
	}
	k.bulk = false
	if g := k.dispatchGrid(launch.Shape{Blocks: 24, Warps: 8}, 7168, dispatchShared); g.Shared != 0 {
		t.Errorf("a kernel that copies nothing in bulk gets %d bytes", g.Shared)
	}
}
