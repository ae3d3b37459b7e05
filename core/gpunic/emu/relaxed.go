// SPDX-License-Identifier: MIT

package emu

import (
	"slices"

	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/mlx5"
)

// A writeBuffer holds bytes that the peer has written and that are not visible yet. Under chaos,
// writes to regions with relaxed order become visible a line at a time, in any order. Writes that
// must become visible later follow a flush.
type writeBuffer struct {
	*end
	lines []line
}

const (
	lineBytes = 64
	maxLines  = 64
)

// A line is a range of written bytes that are not visible yet.
type line struct {
	mem  memory.Memory
	addr uint64
	data []byte
}

// write writes bytes to a region, now or later. Strict writes become visible after all relaxed
// ones, as on PCIe.
func (w *writeBuffer) write(k *memory.Region, addr uint64, data []byte) error {
	if !k.Relaxed || !w.opts.Chaos.Relaxed {
		w.flush()
		return k.Mem().Write(addr, data)
	}
	for len(data) > 0 {
		n := min(lineBytes-addr%lineBytes, uint64(len(data)))
		if len(w.lines) >= maxLines || w.overlaps(addr, n) {
			w.flush()
		}
		w.lines = append(w.lines, line{k.Mem(), addr, data[:n]})
		addr, data = addr+n, data[n:]
	}
	return nil
}

// overlaps reports whether a line overlaps the n bytes at addr. The later write must win.
func (w *writeBuffer) overlaps(addr, n uint64) bool {
	return slices.ContainsFunc(w.lines, func(l line) bool { return addr < l.addr+uint64(len(l.data)) && l.addr < addr+n })
}

// flush makes all lines visible.
func (w *writeBuffer) flush() {
	for len(w.lines) > 0 {
		w.flushOne()
	}
}

// flushSome makes one line or none visible.
func (w *writeBuffer) flushSome() {
	if len(w.lines) > 0 && w.rnd.IntN(4) == 0 {
		w.flushOne()
	}
}

func (w *writeBuffer) flushOne() {
	i, last := w.rnd.IntN(len(w.lines)), len(w.lines)-1
	l := w.lines[i]
	w.lines[i] = w.lines[last]
	w.lines = w.lines[:last]
	if err := l.mem.Write(l.addr, l.data); err != nil && w.ctx.State != mlx5.StateERR {
		w.violate("queue pair %#x: write of %d bytes at %#x: %v", w.num, len(l.data), l.addr, err)
	}
}
