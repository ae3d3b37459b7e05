// SPDX-License-Identifier: MIT

package emu

import (
	"mori/core/gpunic/emu/memory"
	"mori/core/gpunic/mlx5"
)

// A cq is a completion queue. Readers poll its ring while it is written. So the last 8 bytes of an
// entry are written with one store, after all others.
type cq struct {
	*common
	num           uint32
	addr          uint64
	mem           memory.Memory
	record        memory.Record
	log           uint32
	collapsed     bool
	ignoreOverrun bool
	users         int
	release       func()

	produced uint64
	read     uint64 // the doorbell record's last value
	broken   bool   // by an overrun: nothing is written any more, and its queue pairs fail
	waiting  []waitingCQE
}

// A waitingCQE is a completion that chaos delays.
type waitingCQE struct {
	bytes [mlx5.CQEBytes]byte
	due   uint64 // round
	step  uint8
}

// add completes work of a receive queue.
func (c *cq) add(e mlx5.CQE) {
	var b [mlx5.CQEBytes]byte
	e.Put(b[:])
	c.put(b[:])
}

// put writes an entry, now or, under chaos, later.
func (c *cq) put(b []byte) {
	var w waitingCQE
	copy(w.bytes[:], b)
	if c.opts.Chaos.DelayCQE > 0 {
		w.due = c.within(c.opts.Chaos.DelayCQE)
	}
	if c.opts.Chaos.TwoStepCQE && !c.collapsed {
		w.step = 1
	}
	c.waiting = append(c.waiting, w)
	c.drain()
}

// drain writes the completions that are due, in order.
func (c *cq) drain() (moved bool) {
	for len(c.waiting) > 0 && !c.broken && c.waiting[0].due <= c.round {
		moved = true
		if w := &c.waiting[0]; w.step > 0 {
			w.step = 0
			w.due = 1 + c.within(20)
			c.scribble()
			continue
		}
		c.write(&c.waiting[0].bytes)
		c.waiting = c.waiting[1:]
	}
	return moved
}

func (c *cq) slot() uint64 { return c.addr + c.family.cqeBytes()*(c.produced&(1<<c.log-1)) }

// scribble fills the next entry with wrong bytes, up to the byte with its lap.
func (c *cq) scribble() {
	if c.full() {
		return
	}
	at, _ := c.family.lap()
	b := make([]byte, at)
	for i := range b {
		b[i] = byte(c.rnd.Uint32())
	}
	_ = c.mem.Write(c.slot(), b)
}

// full reports whether the next entry would overwrite an unread one. The reader's doorbells may be
// missed, but not the last one.
func (c *cq) full() bool {
	if c.ignoreOverrun {
		return false
	}
	count, modulo, err := c.family.consumed(c)
	if err != nil {
		c.violate("completion queue %#x: %v", c.num, err)
		return true
	}
	c.read += (count - c.read) % modulo
	return c.produced-c.read >= 1<<c.log
}

func (c *cq) write(b *[mlx5.CQEBytes]byte) {
	if c.full() {
		c.overrun()
		return
	}
	bit, first := c.family.lap()
	b[bit] = b[bit]&^1 | byte(c.produced>>c.log)&1 ^ first
	at, last := c.slot(), c.family.cqeBytes()-8
	if err := c.mem.Write(at, b[:last]); err != nil {
		c.overrun()
		return
	}
	memory.StoreLast(c.mem, at+last, b[last:last+8])
	c.produced++
}

// overrun breaks the queue, as a NIC does, and drops the entry.
func (c *cq) overrun() {
	c.broken = true
	c.violate("completion queue %#x overran: %d entries were written, it has 1<<%d", c.num, c.produced, c.log)
}
