// SPDX-License-Identifier: MIT

package emu

import "mori/core/gpunic/mlx5"

// Where writes may be relaxed, bytes lie in lines until they are placed, in any order. Whatever
// must be seen after them has them placed first.

const (
	lineBytes = 64
	maxLines  = 64
)

// A line is bytes that were written and are not visible yet.
type line struct {
	mem  Memory
	addr uint64
	data []byte
}

// put writes bytes to a region, now or, by the chaos, later. Strict writes go behind all relaxed
// ones, as they do on PCIe.
func (q *qp) put(k *mkey, addr uint64, data []byte) error {
	r := &q.respond
	if !k.relaxed || !q.nic.opts.Chaos.Relaxed {
		q.place()
		return k.umem.mem.Write(addr, data)
	}
	for len(data) > 0 {
		n := min(lineBytes-addr%lineBytes, uint64(len(data)))
		l := line{k.umem.mem, addr, data[:n]}
		if len(r.lines) >= maxLines || r.overlaps(addr, n) {
			q.place()
		}
		r.lines = append(r.lines, l)
		addr, data = addr+n, data[n:]
	}
	return nil
}

// overlaps reports whether a line that waits has any of n bytes at addr: the later write must win.
func (r *responder) overlaps(addr, n uint64) bool {
	for _, l := range r.lines {
		if addr < l.addr+uint64(len(l.data)) && l.addr < addr+n {
			return true
		}
	}
	return false
}

// place makes all lines visible.
func (q *qp) place() {
	for len(q.respond.lines) > 0 {
		q.placeOne()
	}
}

// placeSome makes a few lines visible, or none.
func (q *qp) placeSome() {
	if len(q.respond.lines) > 0 && q.nic.rnd.IntN(4) == 0 {
		q.placeOne()
	}
}

func (q *qp) placeOne() {
	lines := q.respond.lines
	i, last := q.nic.rnd.IntN(len(lines)), len(lines)-1
	l := lines[i]
	lines[i] = lines[last]
	q.respond.lines = lines[:last]
	if err := l.mem.Write(l.addr, l.data); err != nil && q.ctx.State != mlx5.StateERR {
		q.nic.violate("queue pair %#x: write of %d bytes at %#x: %v", q.num, len(l.data), l.addr, err)
	}
}
