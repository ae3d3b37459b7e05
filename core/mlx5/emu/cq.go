// SPDX-License-Identifier: MIT

package emu

import (
	"encoding/binary"

	"mori/core/internal/sys"
	"mori/core/mlx5"
)

// A cq is a completion queue. Its ring is read by others while it is written, so the last 8 bytes of an entry are one store, after all others.
type cq struct {
	nic           *NIC
	num           uint32
	addr, dbr     uint64
	mem, dbrMem   Memory
	log           uint32
	collapsed     bool
	ignoreOverrun bool
	users         int
	release       func()

	produced uint64
	broken   bool // by overrun: nothing is written any more
	waiting  []waitingCQE
}

// A waitingCQE is a completion that the chaos holds back.
type waitingCQE struct {
	bytes [mlx5.CQEBytes]byte
	due   uint64 // round
	step  uint8
}

// add completes work. inline, of up to 32 bytes, goes into the entry.
func (c *cq) add(e mlx5.CQE, inline []byte) {
	var w waitingCQE
	if inline != nil {
		e.Format = 1
	}
	e.Put(w.bytes[:])
	copy(w.bytes[:32], inline)
	chaos := &c.nic.opts.Chaos
	if chaos.DelayCQE > 0 {
		w.due = c.nic.round + uint64(c.nic.rnd.IntN(chaos.DelayCQE))
	}
	if chaos.TwoStepCQE && !c.collapsed {
		w.step = 1
	}
	c.waiting = append(c.waiting, w)
	c.drain()
}

// drain writes the completions whose time has come, in order.
func (c *cq) drain() (moved bool) {
	for len(c.waiting) > 0 && !c.broken && c.waiting[0].due <= c.nic.round {
		moved = true
		if w := &c.waiting[0]; w.step > 0 {
			w.step = 0
			w.due = c.nic.round + 1 + uint64(c.nic.rnd.IntN(20))
			c.scribble()
			continue
		}
		c.write(&c.waiting[0].bytes)
		c.waiting = c.waiting[1:]
	}
	return moved
}

func (c *cq) slot() uint64 { return c.addr + mlx5.CQEBytes*(c.produced&(1<<c.log-1)) }

// scribble fills the next entry with what is wrong, but for its last byte.
func (c *cq) scribble() {
	if c.full() {
		return
	}
	var b [mlx5.CQEBytes - 1]byte
	for i := range b {
		b[i] = byte(c.nic.rnd.Uint32())
	}
	_ = c.mem.Write(c.slot(), b[:])
}

// full tells that the next entry would overwrite one that was not read.
func (c *cq) full() bool {
	if c.ignoreOverrun {
		return false
	}
	var b [4]byte
	if c.dbrMem.Read(c.dbr, b[:]) != nil {
		return true
	}
	read := binary.BigEndian.Uint32(b[:])
	return (uint32(c.produced)-read)&seqMask >= 1<<c.log
}

func (c *cq) write(b *[mlx5.CQEBytes]byte) {
	if c.full() {
		c.overrun()
		return
	}
	b[63] |= byte(c.produced>>c.log) & 1
	at := c.slot()
	if err := c.mem.Write(at, b[:56]); err != nil {
		c.overrun()
		return
	}
	if _, plain := c.mem.(hostMemory); plain {
		_ = storeLast(at+56, binary.LittleEndian.Uint64(b[56:]))
	} else {
		_ = c.mem.Write(at+56, b[56:])
	}
	c.produced++
}

func storeLast(addr, v uint64) (err error) {
	defer guard(&err)()
	sys.Store64(addr, v)
	return nil
}

// overrun breaks the queue and all queue pairs that complete there, as a NIC does: the entry is lost.
func (c *cq) overrun() {
	c.broken = true
	c.waiting = nil
	c.nic.violate("completion queue %#x overran: %d entries were written, 1<<%d fit", c.num, c.produced, c.log)
	for _, q := range c.nic.order {
		if q.scq == c || q.rcq == c {
			q.fail()
		}
	}
}
