// SPDX-License-Identifier: MIT

package gpu

import (
	"math"
	"time"

	"mori/ep/internal/launch"
)

// Options of a Side.
type Options struct {
	Timeout    time.Duration  // of each wait for other ranks, 0: unbounded
	Blocks     int            // most that the cost model suggests; 0: half of what the GPU runs at once
	Tuning     *launch.Tuning // launches that were measured to be the best, nil: none
	ChunkBytes int            // about what a kernel sends to another host at once; 0: 2 MiB
}

// chunkBytes is the default of ChunkBytes. A put of this length keeps a fast network busy for
// longer than a kernel takes to write and post the next one.
const chunkBytes = 2 << 20

// chunk returns how many bytes are sent to another host at once.
func (o *Options) chunk() int {
	if o.ChunkBytes > 0 {
		return o.ChunkBytes
	}
	return chunkBytes
}

// waitLimit returns how long a kernel waits, in nanoseconds.
func (o *Options) waitLimit() uint64 {
	if o.Timeout > 0 {
		return uint64(o.Timeout)
	}
	return math.MaxInt64
}

// patience returns how long the host waits for a stream: longer than a kernel waits.
func (o *Options) patience() time.Duration {
	if o.Timeout > 0 {
		return o.Timeout + grace
	}
	return untimed + grace
}

// mostBlocks returns how many blocks the cost model may suggest on a GPU of so many units.
func (o *Options) mostBlocks(units int, h *hosts) int {
	most := o.Blocks
	if most <= 0 {
		most = units / 2
	}
	if h != nil {
		most = min(most, hostsBlocks)
	}
	return max(1, min(most, units))
}

// budget returns how many blocks may work on the GPU's own memory.
func (o *Options) budget(units int) int {
	if o.Blocks > 0 {
		return o.Blocks
	}
	return units
}
